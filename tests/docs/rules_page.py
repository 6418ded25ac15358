"""Writes docs/rules.md from the rules themselves: `python -m tests.docs.rules_page`, in the repository's root.

With `--seen`, first rewrites every network of the zoo, the public set and onnx's light models, and notes which rules
apply where.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from bench.light import LIGHT, light
from bench.public_set import PUBLIC
from bench.subjects import subject
from bench.zoo.catalogue import ZOO
from compiler.contract import CompileOptions
from compiler.errors import TilewrightError
from compiler.frontend import load
from compiler.legalise.rules import RULES as LEGALISATION
from compiler.ops import OPERATORS
from compiler.rewrite import Rule, rewrite
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.choose import alternatives
from compiler.rewrite.rules import RULES
from tests.docs.pages import wrapped
from tests.proofs.kept import kept

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
SEEN = Path(__file__).parent / "rules_seen.json"
NAMED = 4
"""Models that a row names."""

WRITTEN_BY: Mapping[str, tuple[str, ...]] = {
    "factors of training, multiplied out": ("product_by_low_rank",),
    "what folding and other rules leave": (
        "add_negative_zero",
        "add_zero",
        "subtract_zero",
        "multiply_by_one",
        "divide_by_one",
        "power_of_one",
        "negated_twice",
        "transpose_of_nothing",
        "only_operand",
        "slice_of_pad",
        "split_of_one",
        "split_of_concat",
        "concat_of_split",
        "not_of_not",
        "where_of_not",
        "where_decided",
        "logic_decided",
        "multiply_by_minus_one",
        "add_negated",
        "negate_product",
        "subtract_constant",
        "cast_of_cast",
        "cast_to_own_type",
        "pad_of_pad",
        "reduction_over_unit_axes",
        "reduction_of_reduction",
        "reduction_of_transpose",
    ),
    "choices, on whose results it is applied": (
        "map_of_split",
        "constants_of_split",
        "depthwise_of_split",
        "joined_branches",
    ),
    "quantisation, of networks with Relu and Clip": ("saturated_anyway",),
    "quantisation, of networks with Gelu, Swish and the like": ("function_of_a_byte",),
    "quantisation, of networks that enlarge before they convolve": ("quantised_before_resize",),
    "exporters of TensorFlow and Keras": (
        "identity",
        "relu_of_relu",
        "clamp_of_clamp",
        "clip_by_min_max",
        "pad_into_average_pool",
        "pad_into_max_pool",
        "depth_to_space_by_transpose",
        "space_to_depth_by_transpose",
        "scale_before_operators",
        "scale_before_weights",
        "leaky_relu_by_where",
        "elu_by_where",
    ),
    "exporters of PyTorch, for modules that are written in Python": (
        "sigmoid_by_exp",
        "tanh_by_sigmoid",
        "softplus_by_exp",
        "mish_by_softplus",
        "swish_by_exp",
        "hard_sigmoid_by_clip",
        "leaky_relu_by_relus",
        "standardised_by_moments",
        "norm_between_casts",
        "norm_by_squares",
        "log_softmax_by_exp",
        "log_of_softmax",
        "place_of_greatest",
        "rotary_by_parts",
        "rnn_of_one_step",
        "pointwise_before_resize",
    ),
    "networks of several branches or factors: RepVGG, YOLO's Focus stem, low-rank convolutions": (
        "sum_of_convolutions",
        "conv_of_space_to_depth",
        "conv_of_conv",
    ),
    "ranges of shapes": ("pad_beyond_again", "pad_beyond_of_zeros", "pad_beyond_of_map", "pad_beyond_beside_zero"),
}
"""What writes the left sides of rules that apply in none of the networks at hand."""

STATES = kept()
"""What is shown of each rule."""

HEAD = """\
# Rules

This page is generated: `python -m tests.docs.rules_page` writes it from the rules themselves, and a test demands that
it is current. [How rewriting works](rewriting.md) has a page of its own; how a rule is written, beside the rules
(`compiler/rewrite/rules/README.md`).

An equation is **exact** where both sides are the same number bit by bit, for NaN, infinities and both zeros too; it
**reassociates** where they are equal over the reals and may differ in rounding; it is **approximate** where they differ
by at most a stated part of the largest value. "Seen in" names networks of `bench.zoo`, the public set and onnx's light
models in which it applies: the first few, and how many there are; or, in italics, what writes its left side where none
of them has it.

"Shown" says what a solver proved of the rule as it runs (`make prove-rules`; [what that means](verification.md)): that
every element stays what it was, for **all sizes** for which the rule takes one of the ways that it took at the left
sides drawn for it; or for all but those of windows, steps and padding. Elements are equal as **bits**, whatever the
functions of them round to, as **floats** of IEEE 754 with NaN, infinities and both zeros, or as **reals**.
"""


def page(seen: Mapping[str, Sequence[str]]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *_families("Rules", RULES, seen), *_families("Choices", CHOICES, seen), *_legalisation()])


def _legalisation() -> Iterator[str]:
    yield "## Legalisation\n\nApplied where they lead to operators that an [accelerator](accelerators.md) has.\n"
    for module in dict.fromkeys(rule.match.__module__ for rule in LEGALISATION):
        doc = (import_module(module).__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
        yield f"### {module.rpartition('.')[2]} of legalisation\n\n{wrapped(doc)}\n"
        yield "| rule | kind | equation | shown |\n|---|---|---|---|"
        for rule in LEGALISATION:
            if rule.match.__module__ == module:
                equation = rule.equation.replace("|", "\\|")
                yield f"| `{rule.name}` | {rule.kind} | `{equation}` | {STATES[rule.name]} |"
        yield ""


def _families(title: str, rules: Sequence[Rule], seen: Mapping[str, Sequence[str]]) -> Iterator[str]:
    about = {
        "Rules": "Applied wherever they can be, until nothing becomes smaller.",
        "Choices": "Offered; costs of kernels decide.",
    }
    yield f"## {title}\n\n{about[title]}\n"
    for module in dict.fromkeys(rule.match.__module__ for rule in rules):
        doc = (import_module(module).__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
        yield f"### {module.rpartition('.')[2]}\n\n{wrapped(doc)}\n"
        yield "| rule | kind | equation | shown | seen in |\n|---|---|---|---|---|"
        yield from (_row(rule, seen) for rule in rules if rule.match.__module__ == module)
        yield ""


def _row(rule: Rule, seen: Mapping[str, Sequence[str]]) -> str:
    models = seen.get(rule.name, ())
    more = f" and {len(models) - NAMED} more" if len(models) > NAMED else ""
    equation = rule.equation.replace("|", "\\|")
    where = f"{', '.join(models[:NAMED])}{more}" or next(
        f"*{who}*" for who, names in WRITTEN_BY.items() if rule.name in names
    )
    return f"| `{rule.name}` | {rule.kind} | `{equation}` | {STATES[rule.name]} | {where} |"


def where_seen() -> dict[str, list[str]]:
    """The networks in which each rule applies, or each choice is offered."""
    found: dict[str, list[str]] = {rule.name: [] for rule in (*RULES, *CHOICES)}
    for name, model, options in _models():
        try:
            done = rewrite(load(model, options, OPERATORS).graph)
        except TilewrightError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        applied = {application.rule for application in done.log}
        applied |= {offer.rule.name for offer in alternatives(done.graph)[0]}
        for rule in applied & found.keys():
            found[rule].append(name)
    return found


def _models() -> Iterator[tuple[str, Path | bytes, CompileOptions]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in (*(entry.name for entry in ZOO), *(model.name for model in PUBLIC)):
            one = subject(name, Path(folder))
            yield name, one.file, CompileOptions.from_json(dict(one.options))
            if one.source == "zoo":
                one.file.unlink()
    for name, _ in LIGHT:
        yield name, light(name).SerializeToString(), CompileOptions()


if __name__ == "__main__":
    if sys.argv[1:] == ["--seen"]:
        SEEN.write_text(json.dumps(where_seen(), indent=1) + "\n")
    PAGE.write_text(page(json.loads(SEEN.read_text())))
