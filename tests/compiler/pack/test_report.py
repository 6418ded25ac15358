from __future__ import annotations

import json
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
    for reported in (
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
        assert reported in words


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
    titles = [str(task.findtext(f"{SVG}title")) for task in tasks_of(root)]
    assert [title.split("\n")[0] for title in titles] == ["Mul", "Mul", "Cast_Add_Greater"]
    assert "3 µs (measured)" in titles[0]
    assert "1 µs (model)" in titles[2]


def tasks_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [one for one in root.iter(f"{SVG}g") if one.get("class", "").startswith("task")]


def test_tasks_are_drawn_from_begin_to_end_on_their_lane(artifact: Path) -> None:
    root = ElementTree.fromstring(member(artifact, "plan.svg"))
    boxes = [box for task in tasks_of(root) for box in task.iter(f"{SVG}rect")]
    x, wide, y = ([float(box.get(key, "")) for box in boxes] for key in ("x", "width", "y"))
    assert x[0] == x[1] < x[2]
    assert wide[0] / wide[2] == pytest.approx(3, rel=0.01)
    assert y[0] == y[2] < y[1]


def test_handovers_are_drawn_and_those_on_the_critical_path_are_marked(parts: Any, tmp_path: Path) -> None:
    """From the end of the task that is waited for to the begin of the one that waits."""

    def lines(parts: Any, name: str) -> dict[str, int]:
        drawn = ElementTree.fromstring(member(parts.pack(tmp_path / name).path, "plan.svg"))
        kinds = ("handover", "deciding")
        found = [path for path in drawn.iter(f"{SVG}path") if path.get("class") in kinds]
        return {
            kind: sum(path.get("d", "").count("L") for path in found if path.get("class") == kind) for kind in kinds
        }

    assert lines(parts, "m.tw") == {"handover": 1, "deciding": 0}
    late = replace(parts, facts=replace(parts.facts, handover_s=2e-6))
    assert lines(late, "n.tw") == {"handover": 0, "deciding": 1}


MEASURED = ((0.0, 3.1e-6), (0.1e-6, 3.6e-6), (3.8e-6, 5.8e-6))


def test_what_was_traced_is_drawn_beside_what_was_predicted(parts: Any, tmp_path: Path) -> None:
    traced = replace(parts, facts=replace(parts.facts, measured=MEASURED))
    path = traced.pack(tmp_path / "m.tw").path
    root = ElementTree.fromstring(member(path, "plan.svg"))
    assert "Predicted 4 µs, measured 5.80 µs: 45.0% longer" in root.get("aria-label", "")
    boxes = [list(task.iter(f"{SVG}rect")) for task in tasks_of(root)]
    assert [len(pair) for pair in boxes] == [2, 2, 2]
    title = str(tasks_of(root)[2].findtext(f"{SVG}title"))
    assert "predicted 1 µs from 3 µs, critical" in title
    assert "measured 2 µs from 3.80 µs, critical" in title
    assert "measured over predicted 2.00" in title
    reported = json.loads(member(path, "plan.json"))
    assert [task["measured_s"] for task in reported["tasks"]] == [list(span) for span in MEASURED]
    assert traced.pack(tmp_path / "n.tw").digest == traced.pack(tmp_path / "m.tw").digest
    words = " ".join(Page(member(path, "report.html")).words)
    for told_of in ("Kernels that did not take their time", "+1 µs", "2.00", "Where the time of each lane goes"):
        assert told_of in words


def test_what_was_not_traced_is_said_to_be_predicted(artifact: Path) -> None:
    assert "Predicted 4 µs, not measured" in member(artifact, "plan.svg")
    words = " ".join(Page(member(artifact, "report.html")).words)
    assert "Nothing was measured" in words
    assert "Kernels that did not take their time" not in words


def test_the_picture_says_where_it_differs_from_what_the_scheduler_predicted(parts: Any, tmp_path: Path) -> None:
    other = replace(parts, plan=replace(parts.plan, predicted_s=5e-6)).pack(tmp_path / "m.tw").path
    assert "rows of kernels and hand-overs alone end at 4 µs, the scheduler predicts 5 µs" in member(other, "plan.svg")
    said = replace(parts.facts, predicted=((0.0, 3e-6), (0.0, 3e-6), (3.5e-6, 5e-6)))
    same = replace(parts, plan=replace(parts.plan, predicted_s=5e-6), facts=said).pack(tmp_path / "n.tw").path
    assert "alone end at" not in member(same, "plan.svg")


def test_schedules_that_were_found_are_told_with_what_they_reached(parts: Any, tmp_path: Path) -> None:
    found = (
        PlanReached("sequential", 2, 6, 2e-3, 0.5, 2.2e-3, 1.0, 1.0, 1.0),
        PlanReached("stages", 2, 3, 1.5e-3, 0.25, 1.76e-3, 0.8, 0.79, 0.81, taken=True),
        PlanReached("blocks", 2, 4, 4e-3),
    )
    page = member(replace(parts, facts=replace(parts.facts, plans=found)).pack(tmp_path / "m.tw").path, "report.html")
    words = " ".join(Page(page).words)
    for reported in (
        "Schedules that were found",
        "stages , taken",
        "1.76 ms",
        "0.800 (0.790 to 0.810)",
        "not run",
        "250 ms",
    ):
        assert reported in words
    alone = replace(parts, facts=replace(parts.facts, plans=found[:1]))
    assert "Whole runs of it alone" in member(alone.pack(tmp_path / "n.tw").path, "report.html")
    unrun = replace(parts, facts=replace(parts.facts, plans=found[2:]))
    assert "Schedules that were found" not in member(unrun.pack(tmp_path / "o.tw").path, "report.html")


def test_hostile_names_leave_the_picture_well_formed(parts: Any, tmp_path: Path) -> None:
    traced = replace(hostile(parts), facts=replace(hostile(parts).facts, measured=MEASURED))
    text = member(traced.pack(tmp_path / "m.tw").path, "plan.svg")
    titles = [str(task.findtext(f"{SVG}title")) for task in tasks_of(ElementTree.fromstring(text))]
    assert titles[0].startswith("</script></title><script>alert(1)</script>")
    assert "\\u0000\\u001b\\ud800\\u202e\\u000a" in titles[0]


def test_a_model_without_times_still_has_a_picture_and_a_report(parts: Any, tmp_path: Path) -> None:
    facts = replace(parts.facts, costs=(Cost(0.0, "model"), Cost(0.0, "model")), explanation=Explanation(), notices=())
    path = replace(parts, facts=facts, records=()).pack(tmp_path / "m.tw").path
    ElementTree.fromstring(member(path, "plan.svg"))
    assert "Notices" not in " ".join(Page(member(path, "report.html")).words)


def test_the_report_tells_which_plan_is_for_which_cores(parts: Any, tmp_path: Path) -> None:
    near = replace(parts.plan, scheduler="stages", most_handover_s=1.6e-7, predicted_s=3e-6)
    facts = replace(parts.facts, handover_s=3.6e-7)
    both = replace(parts, facts=facts, others=(near,)).pack(tmp_path / "both.tw").path
    words = " ".join(Page(member(both, "report.html")).words)
    assert "2 plans for different cores" in words
    assert "a hand-over took 360 ns, so that plan 2 was chosen" in words
    assert "1 at most 160 ns (near cores) stages 2 1 64 B 3 µs" in words
    assert "2 longer, or was not measured (far cores) sequential , on this page 2 1 64 B 4 µs" in words
    alone = " ".join(Page(member(replace(parts, facts=facts).pack(tmp_path / "one.tw").path, "report.html")).words)
    assert "plans for different cores" not in alone


def test_the_report_says_how_lanes_share_the_kernels(artifact: Path) -> None:
    words = " ".join(Page(member(artifact, "report.html")).words)
    assert (
        "each lane is a thread, each box work on one kernel: 1 kernel split over several lanes, "
        "1 kernel on one lane each." in words
    )
