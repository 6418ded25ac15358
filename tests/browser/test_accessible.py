"""Every view by the rules of WCAG 2.1 (A and AA) that a program can check, and by the keyboard alone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.conftest import SCREENS
from tests.browser.test_page import VIEWS, asked, entered
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House
from tests.end_to_end.models import QUICK, tiny

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PUBLISHED = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""SHA-256 of axe.min.js of axe-core 4.14.1 (MPL-2.0), as it was published."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
TABS = {
    "overview": "Proof",
    "schedule": "critical path",
    "graph": "one colour",
    "kernels": "slowest first",
    "tuning": "measured",
    "source": "#include",
    "history": "this one",
    "log": "RUNNING",
}


@pytest.fixture(scope="module")
def job(house: House) -> dict[str, Any]:
    """A compiled model."""
    sent = httpx.post(
        f"{house.url}/compile",
        files={"model": tiny(QUICK)},
        data={"options": '{"threads": 1, "tuning_budget_s": 1}'},
        headers={"Authorization": f"Bearer {house.key}", "Prefer": "wait=60"},
        timeout=120.0,
        trust_env=False,
    )
    made: dict[str, Any] = sent.raise_for_status().json()
    return made


def violations(page: Browser) -> list[str]:
    """What axe finds of this view, with the elements."""
    page.run(AXE.read_text() + "\nwindow.axe = axe;")
    found: list[str] = page.run(
        "return axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}}).then((found) => found.violations"
        ".flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))",
        RULES,
    )
    return found


def test_the_checker_is_as_it_was_published_and_finds_faults(house: House, page: Browser) -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == PUBLISHED
    with page.tab():
        page.go(house.url)
        page.sees("API key")
        assert violations(page) == []
        page.run("document.querySelector('label').replaceWith(document.querySelector('#key'))")
        assert any(one.startswith("label:") for one in violations(page))


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_no_view_breaks_a_rule(house: House, page: Browser, job: dict[str, Any], width: int, dark: bool) -> None:
    with page.tab(dark=dark):
        page.size(width, 900)
        entered(house, page)
        views = {**VIEWS, **{f"jobs/{job['id']}/{tab}": text for tab, text in TABS.items()}}
        found = {}
        for view, text in views.items():
            page.go(f"{house.url}/#/{view}")
            page.sees(text)
            if faults := violations(page):
                found[view] = faults
            wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, view
        assert "\n".join(f"{view}: {one}" for view, faults in found.items() for one in faults) == ""


def test_the_keyboard_reaches_views_drawings_and_what_they_tell(
    house: House, page: Browser, job: dict[str, Any]
) -> None:
    with page.tab():
        page.size(1280, 900)
        entered(house, page)
        page.go(f"{house.url}/#/jobs/{job['id']}")
        page.sees("Proof")
        page.run("document.querySelector('nav.tabs a[href$=schedule]').focus()")
        page.keys("\ue007")
        page.sees("critical path")
        page.run("document.querySelector('canvas').focus()")
        page.keys("n")
        plan = asked(house, f"/artifacts/{job['artifact_id']}/plan")
        first = min(range(len(plan["tasks"])), key=lambda at: (plan["tasks"][at]["begin_s"], plan["tasks"][at]["lane"]))
        page.sees(plan["calls"][plan["tasks"][first]["call"]]["tile"])
        assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.picture(SCREENS / "keyboard.png")
        page.keys("\ue00c")
        page.until(lambda: page.run("return document.querySelectorAll('main pre').length") == 0, "nothing is chosen")


def focused_by_tab(page: Browser, wanted: str, most: int = 60) -> None:
    """Go on by the Tab key until the element of a selector has the focus, which must be seen."""
    for _ in range(most):
        page.keys("\ue004")
        if page.run("return document.activeElement.matches(arguments[0])", wanted):
            assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", wanted
            return
    raise AssertionError(f"the Tab key never came to {wanted}")


REACHED = {
    "jobs": "main tbody a",
    "compile": "input#model",
    "benchmarks": "main input[type=checkbox]",
    "records": "main form button",
    "operations": "main details summary",
    "jobs/{id}/overview": "main nav.tabs a",
    "jobs/{id}/schedule": "main canvas",
    "jobs/{id}/graph": "main canvas",
    "jobs/{id}/kernels": "main div.scroll",
    "jobs/{id}/tuning": "main nav.tabs a[href$=log]",
    "jobs/{id}/source": "main select",
    "jobs/{id}/history": "main nav.tabs a[href$=history]",
    "jobs/{id}/log": "main pre",
}
"""Of each view what is to be worked with there."""


def test_the_tab_key_reaches_what_each_view_is_for(house: House, page: Browser, job: dict[str, Any]) -> None:
    assert {name.rpartition("/")[2] for name in REACHED} == {*VIEWS, *TABS}
    with page.tab():
        page.size(1280, 900)
        entered(house, page)
        for view, wanted in REACHED.items():
            page.go(f"{house.url}/#/{view.format(id=job['id'])}")
            page.sees({**VIEWS, **TABS}[view.rpartition("/")[2]])
            page.find(wanted)
            page.run("document.querySelector('main').focus()")
            focused_by_tab(page, wanted)
        page.go(f"{house.url}/#/jobs/{job['id']}/graph")
        page.sees("one colour")
        page.run("document.querySelector('main').focus()")
        focused_by_tab(page, "main canvas")
        page.keys("n")
        page.sees("Measurements")
        assert page.run("return document.querySelectorAll('pre').length") > 0
        page.go(f"{house.url}/#/jobs/{job['id']}")
        page.sees("Name the job")
        page.run("document.querySelector('main .labels button').focus()")
        page.keys("\ue007")
        page.run("document.querySelector('main').focus()")
        focused_by_tab(page, "input[name=name]")
        page.keys("by keys")
        focused_by_tab(page, "form.box button.main")
        page.keys("\ue007")
        page.until(lambda: asked(house, f"/jobs/{job['id']}")["name"] == "by keys", "the name")
