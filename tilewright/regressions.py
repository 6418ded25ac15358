"""Whether an artifact is worse than one that was kept: the judgement, and its forms for people and for CI."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.notebook import seconds

SUITE = "tilewright check"


@dataclass(frozen=True)
class Verdict:
    """One of the questions, with the answer in words.

    figures  what it rests on
    """

    name: str
    passed: bool
    said: str
    figures: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "passed": self.passed, "said": self.said, **self.figures}


def judged(found: Mapping[str, Any], slower: float, error: float, larger: float) -> list[Verdict]:
    """What became of latency, error and size.

    found   of `worker.race.pair`: kept_s, new_s, ratio, low, high, difference, kept_bytes, new_bytes
    slower  how much longer a run may take, as a share of the kept one's; a ratio beyond it counts where its interval
            excludes 1, so that what cannot be told apart is no regression
    error   the largest difference of outputs that is accepted, relative to the largest value of each
    larger  how much larger the file may be, as a share
    """
    return [_latency(found, slower), _error(found["difference"], error), _size(found, larger)]


def failed_to_compile(message: str) -> Verdict:
    """The answer where there is no new artifact, or it does not run."""
    return Verdict("compile", False, message.partition("\n")[0], {})


def junit(model: str, verdicts: Sequence[Verdict]) -> str:
    """A JUnit file with a test case for each verdict."""
    failures = sum(not one.passed for one in verdicts)
    suite = ElementTree.Element("testsuite", name=SUITE, tests=str(len(verdicts)), failures=str(failures), errors="0")
    for one in verdicts:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(model), name=one.name)
        if one.passed:
            ElementTree.SubElement(case, "system-out").text = _xml(one.said)
        else:
            ElementTree.SubElement(case, "failure", message=_xml(one.said)).text = _xml(one.said)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def annotation(model: str, verdict: Verdict) -> str:
    """A command of GitHub's workflows that shows a verdict beside the run."""
    level = "notice" if verdict.passed else "error"
    return f"::{level} title={_escaped(f'{verdict.name} of {model}', ':,')}::{_escaped(verdict.said)}"


def share(text: str) -> float:
    """`5%` or `0.05` as a number. Raises ValueError for what is no share of at least 0."""
    number = float(text.removesuffix("%").strip()) / (100.0 if text.endswith("%") else 1.0)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{text!r} is no share")
    return number


def _latency(found: Mapping[str, Any], slower: float) -> Verdict:
    ratio, low, high = found["ratio"], found["low"], found["high"]
    is_sure = low is not None and low > 1
    between = (
        f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ", in too few rounds to be sure"
    )
    said = (
        f"{seconds(found['new_s'])}, kept {seconds(found['kept_s'])}: {ratio:.3f} times as long{between}, "
        f"{1 + slower:.3g} permitted"
    )
    names = ("kept_s", "new_s", "ratio", "low", "high", "rounds", "threads")
    return Verdict("latency", not (is_sure and ratio > 1 + slower), said, {name: found.get(name) for name in names})


def _error(found: float | None, permitted: float) -> Verdict:
    figures = {"difference": found, "permitted": permitted}
    if found is None:
        return Verdict(
            "error", False, "outputs have other shapes, or values that are finite in one of them alone", figures
        )
    said = f"outputs differ from the kept ones by {found:.2g} of the largest value, {permitted:.2g} permitted"
    return Verdict("error", found <= permitted, said, figures)


def _size(found: Mapping[str, Any], larger: float) -> Verdict:
    kept, new = found["kept_bytes"], found["new_bytes"]
    said = f"{new} bytes, kept {kept}: {new / kept:.3f} times as large, {1 + larger:.3g} permitted"
    return Verdict("size", new <= kept * (1 + larger), said, {"kept_bytes": kept, "new_bytes": new})


def _escaped(text: str, further: str = "") -> str:
    """As workflow commands ask for: `%`, ends of lines, and what parts a title from others."""
    for letter in "%\r\n" + further:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def _xml(text: str) -> str:
    """Without what XML 1.0 has no letters for."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
