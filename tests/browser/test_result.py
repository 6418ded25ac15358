"""What came of a compilation, in the words of the page: one latency, a race, plans with reasons, time that is left."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from compiler.steps.planning.choice import HOPE
from tests.browser.conftest import SCREENS
from tests.browser.test_page import SECONDS, asked, bearer, entered
from tests.browser.test_walk import submitted
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House
from tests.end_to_end.models import LONG, tiny

SHOWN = """
const [component, properties] = arguments;
return Promise.all([import('/web/vendor/htm-preact.js'), import('/web/result.js')]).then(([{html, render}, all]) => {
  const box = document.createElement('div');
  document.querySelector('main').append(box);
  render(html`<${all[component]} ...${properties} />`, box);
  const text = box.innerText;
  box.remove();
  return text;
});
"""
"""The text of a component of result.js."""
RACE = {
    "peer": "onnxruntime",
    "version": "1.30.1",
    "said": "said",
    "threads": 2,
    "ours_s": 1.08e-3,
    "theirs_s": 1.66e-3,
    "ratio": 1.5401,
    "low": 1.49,
    "high": 1.58,
    "rounds": 12,
    "difference": 1e-6,
}


@pytest.fixture(scope="module")
def inside(house: House, page: Browser) -> Browser:
    return entered(house, page)


def plan(scheduler: str, measured_s: float | None, *of_sequential: float, taken: bool = False) -> dict[str, Any]:
    """What a report says of a plan; `of_sequential` is its ratio with the ends of its interval."""
    ratio, low, high = of_sequential or (None, None, None)
    found = {"scheduler": scheduler, "lanes": 2, "predicted_s": 1e-3, "measured_s": measured_s}
    return {**found, "ratio": ratio, "low": low, "high": high, "taken": taken}


def test_a_race_stands_on_top_of_a_job_and_in_the_list(house: House, inside: Browser) -> None:
    page = inside
    number = submitted(house, tiny(LONG), '{"threads": 1, "tuning_budget_s": 0, "compare": ["onnxruntime"]}')
    named = {"name": f"{LONG}.onnx"}
    httpx.patch(f"{house.url}/jobs/{number}", json=named, headers=bearer(house), trust_env=False).raise_for_status()
    page.go(f"{house.url}/#/jobs/{number}")
    page.sees("What made it fast")
    job = asked(house, f"/jobs/{number}")
    (race,) = job["compared"]
    assert race["ratio"], race["said"]
    text = page.text()
    ours, theirs = (page.run(SECONDS, race[name]) for name in ("ours_s", "theirs_s"))
    figures = "return import('/web/shown.js').then(({figures}) => arguments[0].map(figures))"
    ratio, low, high = page.run(figures, [race["ratio"], race["low"], race["high"]])
    assert f"{ratio} times as fast" in text
    assert f"({low} to {high} with 95 %" in text
    assert text.index("times as fast") < text.index("one inference") < text.index("Proof")
    assert text.partition("one inference")[2].split("\n")[1] == ours, (
        "the time of the race, and no other, is the result"
    )
    assert theirs in text
    assert page.run("return document.title").endswith(f": {ours} · Tilewright")
    page.picture(SCREENS / "raced.png")
    page.visit("Jobs")
    cells = (
        "return Object.fromEntries([...document.querySelector('table.jobs tbody tr').cells]"
        ".map((one) => [one.dataset.name, one.innerText]))"
    )
    row = page.until(lambda: page.run(cells), "the job's row")
    assert (row["latency"], row["speed-up"]) == (ours, f"{ratio}×")
    assert row["error"] == page.run(figures, [job["largest_error"]])[0]
    assert row["took"] == page.run(SECONDS, job["run_seconds"])
    assert row["state"] == "succeeded"
    assert row["model"].startswith(f"{LONG}.onnx")
    page.picture(SCREENS / "list.png")
    assert page.said() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "1.54 times as fast as ONNX Runtime (1.49 to 1.58 with 95 %, 12 rounds in turns)"),
        ({"ratio": 0.9, "low": 0.85, "high": 0.95}, "Slower than ONNX Runtime: 0.9 times as fast"),
        ({"ratio": 1.01, "low": 0.9, "high": 1.1}, "Cannot tell which is faster, this or ONNX Runtime"),
        ({"low": None, "high": None, "rounds": 2}, "in 2 rounds, too few to be sure"),
        ({"ratio": None, "ours_s": None, "said": "it is not installed"}, "Not raced with ONNX Runtime: it is not"),
        ({"peer": "openvino"}, "1.54 times as fast as OpenVINO"),
    ],
)
def test_a_race_says_no_more_than_it_shows(inside: Browser, change: dict[str, Any], says: str) -> None:
    assert says in inside.run(SHOWN, "Compared", {"compared": [{**RACE, **change}]})


def test_a_job_without_a_race_has_none_on_top(inside: Browser) -> None:
    assert inside.run(SHOWN, "Compared", {"compared": []}) == ""
    assert inside.run(SHOWN, "Speedup", {"compared": []}) == ""


@pytest.mark.parametrize(("proved_s", "is_busy"), [(1.2e-3, False), (2.77e-3, True), (0.5e-3, True)])
def test_times_of_one_plan_that_are_far_apart_say_that_the_machine_was_busy(
    inside: Browser, proved_s: float, is_busy: bool
) -> None:
    report = {"latency_s": proved_s, "compared": [RACE], "plans": [plan("auto", 1.1e-3, taken=True)]}
    text = inside.run(SHOWN, "OtherTimes", {"report": report})
    assert ("The machine was busy" in text) is is_busy
    assert "Other times of the same plan" in text


def reason(page: Browser, at: int, plans: list[dict[str, Any]]) -> str:
    return str(
        page.run(
            "const [at, plans] = arguments;"
            "return import('/web/schedules.js').then(({reasonOf}) => reasonOf(plans[at], plans))",
            at,
            plans,
        )
    )


def test_every_plan_has_the_reason_for_which_it_was_taken_or_was_not(inside: Browser) -> None:
    sequential, fast = plan("sequential", 2e-3, 1.0, 1.0, 1.0), plan("heft", 1e-3, 0.5, 0.45, 0.55, taken=True)
    less, doubtful = plan("ios", 1.5e-3, 0.75, 0.7, 0.8), plan("cpath", 1.9e-3, 0.97, 0.9, 1.04)
    slower, unrun = plan("stages", 3e-3, 1.5, 1.4, 1.6), plan("optimal", None)
    slow = {**unrun, "predicted_s": HOPE * sequential["predicted_s"] * 1.2}
    plans = [sequential, fast, less, doubtful, slower, unrun, slow]
    assert [reason(inside, at, plans) for at in range(len(plans))] == [
        "another was certainly faster",
        "certainly faster than the sequential plan: 50 % less time",
        "certainly faster than the sequential plan, by less than the one that was taken",
        "not certainly faster than the sequential plan",
        "certainly slower than the sequential plan",
        "not run: no time was left, or it is like one that was",
        "predicted to take 1.5 times as long as the first: not worth a run",
    ]
    kept = [{**sequential, "taken": True}, doubtful]
    assert reason(inside, 0, kept) == "cpath took less time, but not certainly, round by round"
    assert reason(inside, 0, kept[:1]) == "the only plan"
    assert reason(inside, 0, [kept[0], unrun]) == "no other was run"
    assert reason(inside, 0, [kept[0], slower]) == "none was certainly faster"
    assert reason(inside, 0, [{**unrun, "taken": True}, sequential]) == "nothing was run that is certainly faster"


@pytest.mark.parametrize(
    ("elapsed", "fraction", "says"),
    [
        (1, 0.5, ""),
        (60, 0.01, ""),
        (60, 0.5, ", about 1 min 00 s left"),
        (30, 0.75, ", about 10 s left"),
        (4000, 0.5, ", about 1 h 6 min left"),
        (60, 1, ", nearly done"),
    ],
)
def test_what_is_left_is_said_once_it_can_be_told(inside: Browser, elapsed: float, fraction: float, says: str) -> None:
    left = "return import('/web/result.js').then(({leftOf}) => leftOf(arguments[0], arguments[1]))"
    assert inside.run(left, elapsed, fraction) == says
