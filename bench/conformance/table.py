"""What the suite found, per operator: for people, and as the part of docs/operators.md that `--write` keeps."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from bench.conformance.judge import PASSED, STATUSES, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
BEGIN, END = "<!-- conformance: begin -->", "<!-- conformance: end -->"
SHOWN = 110
"""Characters of a reason in the table."""


def counts(verdicts: Sequence[Verdict]) -> Counter[str]:
    """Cases of each status."""
    return Counter(verdict.status for verdict in verdicts)


def groups(verdicts: Sequence[Verdict]) -> Mapping[str, list[Verdict]]:
    """The verdicts of each operator, and of each kind of whole model, by name."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.group, []).append(verdict)
    return dict(sorted(found.items(), key=lambda item: (not item[0][0].isupper(), item[0])))


def table(verdicts: Sequence[Verdict]) -> str:
    """Markdown: a row for each group with a case that did not pass, and its most frequent reason; then the total."""
    rows = [
        "| operator | passed | bound | refused | wrong | crashed | most frequent reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in groups(verdicts).items():
        if any(verdict.status != PASSED for verdict in found):
            rows.append(_row(name, found, _reason(found)))
    rows.append(_row("all", verdicts, ""))
    return "\n".join(rows) + "\n"


def _row(name: str, verdicts: Sequence[Verdict], reason: str) -> str:
    found = counts(verdicts)
    return f"| {name} | {' | '.join(str(found[status]) for status in STATUSES)} | {reason} |"


def _reason(verdicts: Sequence[Verdict]) -> str:
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.status != PASSED)
    ((reason, _),) = reasons.most_common(1)
    short = reason if len(reason) <= SHOWN else f"{reason[: SHOWN - 3]}..."
    return short.replace("|", "\\|").replace("<", "\\<").replace("_", "\\_")


def section(verdicts: Sequence[Verdict]) -> str:
    """The part of docs/operators.md, markers included."""
    found = groups(verdicts)
    whole = [name for name, own in found.items() if all(verdict.status == PASSED for verdict in own)]
    passed = f"Every case passes of: {', '.join(f'{name} ({len(found[name])})' for name in whole)}."
    intro = (
        f"`python -m bench conformance --write` compiles each case of the conformance suite of onnx {onnx.__version__} "
        "to an artifact for the CPU it runs on, as it stands and with every input fed when it runs, and compares what "
        "the artifact computes with what the suite expects, within the suite's tolerances. A case whose name ends in "
        "`_expanded` counts for the operator whose function body it is; rows in small letters are whole models. "
        "**Bound** are cases that pass once the inputs that their refusal asks for, such as the shape of a Reshape, "
        'are fixed by options (`{"inputs": {"shape": {"value": [2, 3]}}}`); models mostly have these as constants.'
    )
    parts = (BEGIN, "## Conformance\n", wrapped(intro), "", table(verdicts), wrapped(passed), END)
    return "\n".join(parts) + "\n"


def wrapped(paragraph: str) -> str:
    """A paragraph in lines of at most 120 columns, broken between words alone."""
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def kept(page: str) -> str:
    """The section as a page has it, markers included; empty where it has none."""
    _, begin, rest = page.partition(BEGIN)
    return f"{begin}{rest.partition(END)[0]}{END}\n" if begin else ""


def write(verdicts: Sequence[Verdict], page: Path = PAGE) -> None:
    """Puts the section into the page, in place of the one that is there or at its end."""
    text = page.read_text()
    before = kept(text)
    page.write_text(text.replace(before, section(verdicts)) if before else f"{text}\n{section(verdicts)}")
