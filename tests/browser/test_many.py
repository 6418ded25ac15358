"""The page of somebody who has 10,000 jobs and 100,000 records: what it asks and shows is no more than of few."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.history import write_history
from tests.browser.test_page import entered
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House

MOST_ELEMENTS = 2_500
"""On any view: some dozens of elements for each row of a page."""
MOST_ASKED = 4
"""Requests until a view shows something, beside its own files: whose key it is, and what it lists."""


@pytest.fixture(scope="module")
def many(house: House) -> House:
    """The service with a full history, written past it."""
    write_history(house)
    return house


@pytest.fixture(scope="module")
def inside(many: House, page: Browser) -> Browser:
    """The page of their owner."""
    return entered(many, page)


def asked(page: Browser) -> list[str]:
    """What the page has asked the API for since it was loaded or last asked."""
    names: list[str] = page.run(
        "const all = performance.getEntriesByType('resource').map((one) => one.name);"
        "performance.clearResourceTimings(); return all;"
    )
    return [name for name in names if "/web/" not in name and not name.endswith("/favicon.ico")]


def elements(page: Browser) -> int:
    return int(page.run("return document.querySelectorAll('*').length"))


def rows(page: Browser) -> int:
    return int(page.run("return document.querySelectorAll('tbody tr').length"))


def test_jobs_are_shown_page_by_page(many: House, inside: Browser) -> None:
    page = inside
    page.go(f"{many.url}/#/jobs")
    page.until(lambda: rows(page) == 50, "a page of jobs")
    first: list[str] = page.run("return [...document.querySelectorAll('tbody a')].map((one) => one.hash)")
    asked(page)
    page.press("Older")
    page.until(
        lambda: (
            not set(page.run("return [...document.querySelectorAll('tbody a')].map((one) => one.hash)")) & set(first)
            and rows(page) == 50
        ),
        "the next page",
    )
    assert 0 < elements(page) < MOST_ELEMENTS
    assert all("limit=50" in name for name in asked(page))


@pytest.mark.parametrize(("view", "text"), [("jobs", "Older"), ("records", "Parquet"), ("benchmarks", "Time them")])
def test_a_view_asks_little_and_shows_little_at_first(many: House, inside: Browser, view: str, text: str) -> None:
    page = inside
    page.go(f"{many.url}/#/{view}")
    page.run("location.reload()")
    page.sees(text)
    requests = asked(page)
    assert 0 < len(requests) <= MOST_ASKED, requests
    page.until(lambda: rows(page) > 0, "rows")
    assert elements(page) < 2 * MOST_ELEMENTS, view
    assert page.said() == []


def test_records_are_filtered_by_one_request(many: House, inside: Browser) -> None:
    page = inside
    page.go(f"{many.url}/#/records")
    page.sees("Parquet")
    page.until(lambda: rows(page) > 0, "records")
    asked(page)
    page.type("form input", "Conv")
    page.press("Filter")
    page.until(lambda: any("operator=Conv" in name for name in _seen(page)), "the filtered page")
    page.until(lambda: rows(page) > 0, "its rows")
    assert len([name for name in asked(page) if "operator=" in name]) == 1
    assert elements(page) < 2 * MOST_ELEMENTS


def _seen(page: Browser) -> list[Any]:
    names: list[Any] = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    return names
