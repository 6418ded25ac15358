from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from compiler.contract import PlanReached
from compiler.ir.tile import Cost
from compiler.pack.explanation import Entry, Explanation

HOSTILE = "</script></title><script>alert(1)</script><img src=x onerror=alert(2)>\"' &amp; \x00\x1b\ud800\u202e\n]]>"
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Every tag with its attributes, the text, and whether tags are closed in order."""

    VOID = ("meta", "wbr", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def member(path: Path, name: str) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(name).decode()


def hostile(parts: Any) -> Any:
    """The same model with a hostile string wherever the model or its maker could put one."""
    calls = tuple(
        replace(call, kernel=replace(call.kernel, family=HOSTILE), sources=(HOSTILE,)) for call in parts.kernels.calls
    )
    entries = (Entry(HOSTILE, HOSTILE, 2, HOSTILE, HOSTILE),)
    facts = replace(
        parts.facts,
        options={HOSTILE: HOSTILE},
        model=((HOSTILE, HOSTILE),),
        steps=((HOSTILE, HOSTILE),),
        target=HOSTILE,
        hardware=HOSTILE,
        notices=(HOSTILE,),
        explanation=Explanation(entries, entries, entries, entries, entries),
    )
    (record,) = parts.records
    record = replace(record, operator=HOSTILE, description=HOSTILE, variant={HOSTILE: HOSTILE})
    program = replace(parts.program, toolchain=HOSTILE)
    named = replace(parts, program=program, facts=facts, records=(record,), kernels=replace(parts.kernels, calls=calls))
    return named.named(*[HOSTILE + str(at) for at in range(4)])


def test_the_report_is_whole_and_needs_nothing_from_outside(artifact: Path) -> None:
    page = Page(member(artifact, "report.html"))
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object"})
    for _, attributes in page.tags:
        assert not {"src", "href", "onclick"} & set(attributes)
    words = " ".join(page.words)
    for told in (
        "3 operators",
        "4 kernels",
        "Mul",
        "second, third",
        "Rules applied (3)",
        "2 ×",
        "merge",
        "x + x = 2 x",
        "saves 2 nodes",
        "Kernels left apart, and why (4)",
        "too wide",
        "careful",
        "cc 1.0; -O1",
    ):
        assert told in words


def test_nothing_from_the_model_becomes_markup(parts: Any, tmp_path: Path) -> None:
    path = hostile(parts).pack(tmp_path / "m.tw").path
    page = Page(member(path, "report.html"))
    plain = Page(member(parts.pack(tmp_path / "plain.tw").path, "report.html"))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in plain.tags} | {"wbr"}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", member(path, "report.html"))
    assert "alert(2)" in " ".join(page.words)


def test_the_picture_is_xml_with_a_task_for_each_task_and_its_name_on_hover(artifact: Path) -> None:
    root = ElementTree.fromstring(member(artifact, "plan.svg"))
    tasks = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class", "").startswith("task")]
    titles = [str(task.findtext(f"{SVG}title")) for task in tasks]
    assert [title.split("\n")[0] for title in titles] == ["Mul", "Mul", "Cast_Add_Greater"]
    assert "3 µs (measured)" in titles[0]
    assert "1 µs (model)" in titles[2]


def test_tasks_are_drawn_from_begin_to_end_on_their_lane(artifact: Path) -> None:
    root = ElementTree.fromstring(member(artifact, "plan.svg"))
    tasks = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class", "").startswith("task")]
    x, wide, y = ([float(task.get(key, "")) for task in tasks] for key in ("x", "width", "y"))
    assert x[0] == x[1] < x[2]
    assert wide[0] / wide[2] == pytest.approx(3, rel=0.01)
    assert y[0] == y[2] < y[1]


def test_tasks_that_the_end_does_not_wait_for_are_pale(parts: Any, tmp_path: Path) -> None:
    root = ElementTree.fromstring(member(parts.pack(tmp_path / "m.tw").path, "plan.svg"))
    pale = [
        rect for rect in root.iter(f"{SVG}rect") if "task" in rect.get("class", "") and "slack" in rect.get("class", "")
    ]
    assert len(pale) == 1


def test_handovers_are_drawn_and_those_that_decide_are_marked(parts: Any, tmp_path: Path) -> None:
    """From the end of the task that is waited for to the begin of the one that waits."""
    drawn = ElementTree.fromstring(member(parts.pack(tmp_path / "m.tw").path, "plan.svg"))
    lines = [path for path in drawn.iter(f"{SVG}path") if path.get("class", "").startswith("handover")]
    (line,) = lines[2:]  # after those of the legend
    assert line.get("class") == "handover"
    late = replace(parts, facts=replace(parts.facts, handover_s=2e-6))
    drawn = ElementTree.fromstring(member(late.pack(tmp_path / "n.tw").path, "plan.svg"))
    assert [path.get("class") for path in drawn.iter(f"{SVG}path")][-1] == "handover deciding"


def test_schedules_that_were_found_are_told_with_what_they_reached(parts: Any, tmp_path: Path) -> None:
    found = (
        PlanReached("sequential", 2, 6, 2e-3, 0.5, 2.2e-3, 1.0, 1.0, 1.0),
        PlanReached("stages", 2, 3, 1.5e-3, 0.25, 1.76e-3, 0.8, 0.79, 0.81, taken=True),
        PlanReached("blocks", 2, 4, 4e-3),
    )
    page = member(replace(parts, facts=replace(parts.facts, plans=found)).pack(tmp_path / "m.tw").path, "report.html")
    words = " ".join(Page(page).words)
    for told in (
        "Schedules that were found",
        "stages , taken",
        "1.76 ms",
        "0.800 (0.790 to 0.810)",
        "not run",
        "250 ms",
    ):
        assert told in words
    alone = replace(parts, facts=replace(parts.facts, plans=found[:1]))
    assert "Schedules that were found" not in member(alone.pack(tmp_path / "n.tw").path, "report.html")


def test_hostile_names_leave_the_picture_well_formed(parts: Any, tmp_path: Path) -> None:
    text = member(hostile(parts).pack(tmp_path / "m.tw").path, "plan.svg")
    titles = [str(title.text) for title in ElementTree.fromstring(text).iter(f"{SVG}title")]
    assert titles[0].startswith("</script></title><script>alert(1)</script>")
    assert "\\u0000\\u001b\\ud800\\u202e\\u000a" in titles[0]


def test_a_model_without_times_still_has_a_picture_and_a_report(parts: Any, tmp_path: Path) -> None:
    facts = replace(parts.facts, costs=(Cost(0.0, "model"), Cost(0.0, "model")), explanation=Explanation(), notices=())
    path = replace(parts, facts=facts, records=()).pack(tmp_path / "m.tw").path
    ElementTree.fromstring(member(path, "plan.svg"))
    assert "Notices" not in " ".join(Page(member(path, "report.html")).words)
