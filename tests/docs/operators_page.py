"""Writes docs/operators.md from what the compiler knows: `python -m tests.docs.operators_page`, in the repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from onnx import defs

from bench.conformance.table import kept
from compiler.frontend.expansions.domains import DOMAINS
from compiler.frontend.expansions.draws import DRAWING
from compiler.frontend.opsets.table import COMPOSED, UPGRADES
from compiler.frontend.reading.strings import MAKING
from compiler.frontend.special import FOLDED
from compiler.ops import FAMILIES, MODEL_OPERATORS
from compiler.ops.operator import Operator
from tests.compiler.frontend.open.not_opened import NEVER_FED, NOT_OPENED
from tests.docs.pages import wrapped
from worker.devices.catalogue import INLINED, OWN, about, composed, limits

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"

HEAD = """\
# Operators

This page is generated: `python -m tests.docs.operators_page` writes it from the compiler's own lists, and a test
demands that it is current. Names are those of ai.onnx. A model may state opset 1 to 28; forms of opset 6 and later are
brought to the newest when the model is read, as are those before it that opset 6 left as they were.

"Known when compiling" names inputs that must be constants, or follow from bound shapes and constants, unless [data may
say them](decisions/open-axes-in-the-front-end.md) as one of few values or up to a bound. What is not here is refused
before anything is compiled, each node with the reason and a fix. Element types are bool, signed and unsigned
integers of 2 to 64 bits, float4, float6, float8 in all forms, float16, bfloat16, float and double; complex numbers are
refused. Sequences and optionals [may be inputs and outputs](options.md#shapes) where their lengths are known: each
element is a tensor of the program, `name.0` and so on. [Strings](decisions/strings-are-numbers-in-programs.md) are
compared, moved and chosen; operators that make new ones are applied to inputs before the program runs. Types of 8 bits
and less are [stored and not computed in](decisions/elements-in-memory.md), one byte an element; operators that only
move elements take all of them. An operator may still refuse one of its forms, and says which.
"""


NOTES = {
    "com.microsoft": " DynamicQuantizeLSTM rounds its input to 8 bits by one range, and at each step each "
    "sequence's states by theirs, as ONNX Runtime does with a thread for each; products are exact. MatMulNBits and "
    "GatherBlockQuantized need their packed numbers as constants, which are unpacked when compiling. "
    "GroupQueryAttention needs `total_sequence_length` where its cache grows, which follows from the mask's shape as "
    "exporters write it; places of a cache that no token is in hold what they held.",
    "ai.onnx.ml": " SVMClassifier with `prob_a` couples probabilities in a loop that data end.",
}


def page() -> str:
    """The whole page; what the conformance suite found stays as it is."""
    return "\n".join([HEAD, *_families(), *_others(), *_open(), kept(PAGE.read_text())]).rstrip("\n") + "\n"


def _open() -> Iterator[str]:
    """What has to be bound of operators that do not take every axis open."""
    yield "## Open dimensions\n"
    listed = "; ".join(f"{name}: {what}" for name, what in sorted(NOT_OPENED.items()))
    yield wrapped(
        "Any axis of the first input of an operator above may be open or have a range, which is tried with the cases "
        "of onnx's conformance suite that have one node, but for those of size 1. An operator that has no rule of its "
        "own is computed by the body that ONNX gives for it. Random numbers are those that the model at these very "
        f"sizes draws. What has to be bound to a number: {listed}."
    )
    yield ""
    fed = ", ".join(f"{name} (`{what}`)" for name, what in NEVER_FED.items())
    yield wrapped(
        "Shapes, pads, scales, lengths and counts may be inputs of the graph without a value, each up to a bound "
        f"(option `bounds`), such as those of Resize, Pad and DFT; but for those of {fed}: give these a value in the "
        "options."
    )
    yield ""


def _families() -> Iterator[str]:
    for family in FAMILIES:
        yield f"## {about(family)}\n"
        yield "| operator | opsets | known when compiling | |\n|---|---|---|---|"
        yield from map(_row, sorted(family, key=lambda operator: operator.name))
        yield ""


def _row(operator: Operator) -> str:
    oldest, newest = operator.opsets
    known = ", ".join(f"`{name}`" for _, name in operator.parameters)
    return f"| {operator.name} | {oldest} to {newest} | {known} | {'; '.join(limits(operator))} |"


def _others() -> Iterator[str]:
    elsewhere = {*MODEL_OPERATORS, *FOLDED, *INLINED, *DRAWING}
    yield "## Beside these\n"
    yield _paragraph(
        "**Folded.** Their results follow from types and constants alone, so they never become kernels: "
        f"{_names(FOLDED)}."
    )
    yield _paragraph(
        f"**Resolved while reading.** {_names(_shown(INLINED))}: an If whose condition is known is the branch that it "
        "selects; a short Loop or Scan of known length is unrolled. What data decide runs as a loop, or as one of two "
        "branches ([how](decisions/regions-are-calls-of-calls.md)). Dropout is the identity, or draws; a "
        "ZipMap at the end of a model is left out. Sequences are resolved where their lengths and the positions in "
        "them are known when compiling."
    )
    yield _paragraph(
        f"**Strings, before the program.** {_names(MAKING)}: the loader applies them to inputs and constants of "
        "strings, and to each other's results, and the program takes what they give. StringNormalizer takes one row; "
        "locales mean nothing. RegexFullMatch takes what RE2 and Python's `re` have in common: no references to "
        "groups, lookaround or classes of Unicode."
    )
    yield _paragraph(
        f"**Random.** {_names(DRAWING)}, and Dropout where it trains. "
        "[What they draw](decisions/random-numbers-from-counters.md) follows from a seed and the number of the run."
    )
    old = {name for name, _, _ in UPGRADES} - elsewhere
    yield _paragraph(f"**Rewritten to others.** {_names(name for name in old if _is_deprecated(name))}.")
    yield _paragraph(f"**Made of others.** {_names(COMPOSED)}.")
    yield _paragraph(
        "**By their ONNX function body.** Compiled when every operator of the body is; so are functions that the model "
        f"itself defines: {_names(composed() - elsewhere)}."
    )
    of: dict[str, list[str]] = {}
    for domain, rules in DOMAINS.items():
        of.setdefault(_names(rules), []).append(domain or "no domain")
    for names, domains in of.items():
        said = NOTES.get(domains[0], "")
        yield _paragraph(f"**Of {', '.join(domains)}**, brought to operators of ai.onnx: {names}.{said}")


def _shown(names: Iterable[str]) -> Iterator[str]:
    """With their domains, without those that no model may hold."""
    return (name for name in names if not name.startswith(OWN))


def _paragraph(text: str) -> str:
    return f"{wrapped(text)}\n"


def _is_deprecated(name: str) -> bool:
    return bool(defs.get_schema(name).deprecated)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


if __name__ == "__main__":
    PAGE.write_text(page())
