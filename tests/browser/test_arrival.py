"""How somebody comes in: a key, a link that works once, a sample; and what is said where that fails."""

from __future__ import annotations

from typing import Any

import httpx

from tests.browser.conftest import SCREENS
from tests.browser.test_page import ALL_OF_IT, asked, entered, with_key
from tests.browser.test_walk import job_here
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House


def test_a_key_that_is_none_is_refused_and_whoever_signs_out_is_out(house: House, page: Browser) -> None:
    with page.tab() as window:
        window.go(house.url)
        with_key(window, "twk_none")
        window.sees("Fix:")
        assert window.cookies() == []
        window.type("#key", f"{ALL_OF_IT}{house.key}")
        window.press("Sign in")
        window.sees("Sign out")
        (cookie,) = window.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], "expiry" in cookie) == (True, "Strict", False)
        assert cookie["value"] != house.key
        assert window.run("return [document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
        window.press("Sign out")
        window.sees("Use a key")
        assert window.cookies() == []
        window.forget([cookie])
        window.until(lambda: refused_now(house, cookie), "the session itself has ended")
        window.run("location.reload()")
        window.sees("Use a key")


def test_the_api_is_searched_and_tried_on_its_own_page_with_the_session(house: House, page: Browser) -> None:
    operation = "#operations-keys-get_me"
    answer = f"return document.querySelector('{operation} .live-responses-table')?.innerText ?? ''"
    with page.tab() as window:
        entered(house, window)
        window.said()
        window.go(f"{house.url}/docs#/keys/get_me")
        window.sees("Authorize")
        window.click(f"{operation} .try-out__btn")
        window.click(f"{operation} .execute")
        window.until(lambda: '"scopes"' in str(window.run(answer)), "the answer of /me")
        window.picture(SCREENS / "api.png")
        window.type("input.operation-filter-input", "webhooks")
        window.until(
            lambda: window.run(f"return document.querySelector('{operation}') === null"), "the others are gone"
        )
        assert not [line for line in window.said() if "Content Security Policy" in line or "Deprecated" not in line]


def refused_now(house: House, cookie: dict[str, Any]) -> bool:
    """Whether a session is over; the service remembers for two seconds that it is not."""
    sent = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    return httpx.get(f"{house.url}/me", headers=sent, trust_env=False).status_code == 401


def test_the_link_of_up_signs_in_once_and_leaves_nothing_in_the_address(house: House, page: Browser) -> None:
    printed = (house.folder / "up.log").read_text()
    link = next(word for word in printed.split() if "/#/enter/" in word)
    with page.tab() as window:
        window.go(f"{link}/operations")
        window.sees("Audit")
        assert window.run("return location.hash") == "#/operations"
        token = link.rpartition("/")[2]
        asked_for = window.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert asked_for
        assert not any(token in name for name in asked_for)
        window.run("history.back()")
        window.until(lambda: token not in str(window.run("return location.href")), "no way back to the token")
    with page.tab() as window:
        window.go(link)
        window.sees("this link was used already")
        window.sees("Use a key")
        assert token not in str(window.run("return location.href"))


def test_a_sample_becomes_a_job_by_one_click(house: House, page: Browser) -> None:
    with page.tab() as window:
        entered(house, window)
        assert window.run("return document.title") == "Tilewright"
        window.picture(SCREENS / "start.png")
        window.press("Transformer encoder")
        window.until(lambda: "#/jobs/" in str(window.run("return location.hash")), "the job's view")
        window.sees("Proof")
        job = job_here(house, window)
        assert (job["name"], job["options"]["tuning_budget_s"]) == ("encoder.onnx", 5.0)
        assert asked(house, f"/models/{job['model']}")["name"] == "encoder.onnx"
        window.go(house.url)
        window.sees("Your latest jobs")
        window.sees("encoder.onnx")


def test_what_fails_or_lasts_is_said_in_words_of_its_own(house: House, page: Browser) -> None:
    with page.tab() as window:
        entered(house, window)
        window.run("const real = fetch; window.fetch = () => new Promise(() => {}); window.real = real")
        for view, words in {"jobs": "your jobs", "records": "measurements", "jobs/none": "this job"}.items():
            window.go(f"{house.url}/#/{view}")
            window.sees(f"Fetching {words}")
        window.run("window.fetch = () => Promise.reject(new TypeError('no line'))")
        window.go(f"{house.url}/#/benchmarks")
        window.sees("the service cannot be reached")
        window.run("window.fetch = real")
        window.go(f"{house.url}/#/jobs/none")
        window.sees("Fix:")
        window.forget()
        window.go(f"{house.url}/#/records")
        window.sees("Your session has ended.")
        window.picture(SCREENS / "ended.png")
        window.press("Use a key")
        window.type("#key", house.key)
        window.press("Sign in")
        window.sees("Parquet")
