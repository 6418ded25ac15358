from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.webdriver import Browser, browser, missing
from tests.end_to_end.house import House, running

SCREENS = Path(__file__).parents[2] / "build" / "screens"
"""Where tests leave what they saw, for people to look at."""


@pytest.fixture(scope="session", autouse=True)
def fit_machine() -> None:
    """What every test here needs."""
    if packages := missing():
        pytest.skip(f"no browser to drive: install {packages}")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """`tilewright up`, once for the tests of a file."""
    with running(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(scope="module")
def page(house: House) -> Iterator[Browser]:
    """A window in which nobody has entered a key yet."""
    with browser() as window:
        window.size(1280, 900)
        window.go(house.url)
        yield window
