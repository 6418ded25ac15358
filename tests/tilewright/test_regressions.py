"""Verdicts on an artifact beside the one that was kept, and their forms for CI."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tilewright.regressions import Verdict, annotation, failed_to_compile, judged, junit, share

FOUND: dict[str, Any] = {"kept_s": 1e-3, "new_s": 1e-3, "ratio": 1.0, "low": 0.99, "high": 1.01, "rounds": 15}
FOUND |= {"threads": 2, "difference": 1e-6, "kept_bytes": 1000, "new_bytes": 1000}


def passed(**found: Any) -> dict[str, bool]:
    """By name, with 5 % of time, 1e-4 of error and 10 % of bytes permitted."""
    return {one.name: one.passed for one in judged({**FOUND, **found}, 0.05, 1e-4, 0.1)}


def test_what_is_as_it_was_passes() -> None:
    assert passed() == {"latency": True, "error": True, "size": True}


@pytest.mark.parametrize(
    ("ratio", "low", "high", "is_fine"),
    [
        (1.04, 1.03, 1.05, True),  # surely slower, within what is permitted
        (1.06, 1.04, 1.08, False),
        (1.06, 0.98, 1.15, True),  # cannot be told apart
        (1.50, None, None, True),  # too few rounds to say
        (0.50, 0.49, 0.51, True),
        (1.05, 1.04, 1.06, True),
    ],
)
def test_a_latency_fails_where_it_is_surely_slower_by_more_than_is_permitted(
    ratio: float, low: float | None, high: float | None, is_fine: bool
) -> None:
    assert passed(ratio=ratio, low=low, high=high)["latency"] is is_fine


@pytest.mark.parametrize(("difference", "is_fine"), [(0.0, True), (1e-4, True), (1.1e-4, False), (None, False)])
def test_an_error_fails_beyond_what_is_permitted_and_where_there_is_no_figure(
    difference: float | None, is_fine: bool
) -> None:
    assert passed(difference=difference)["error"] is is_fine


@pytest.mark.parametrize(("size", "is_fine"), [(500, True), (1100, True), (1101, False)])
def test_a_size_fails_beyond_what_is_permitted(size: int, is_fine: bool) -> None:
    assert passed(new_bytes=size)["size"] is is_fine


def test_a_verdict_says_figures_and_what_is_permitted() -> None:
    latency, error, size = judged({**FOUND, "new_s": 2e-3, "ratio": 2.0, "low": 1.9, "high": 2.1}, 0.05, 1e-4, 0.1)
    assert latency.said == "2 ms, kept 1 ms: 2.000 times as long (1.900 to 2.100), 1.05 permitted"
    assert error.said == "outputs differ from the kept ones by 1e-06 of the largest value, 0.0001 permitted"
    assert size.said == "1000 bytes, kept 1000: 1.000 times as large, 1.1 permitted"
    assert latency.to_json()["low"] == 1.9


@pytest.mark.parametrize(("text", "number"), [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("150 %", 1.5)])
def test_a_share_is_a_number_or_a_percentage(text: str, number: float) -> None:
    assert share(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "%", "five", "-5%", "nan", "inf", "5%%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        share(text)


ODD = Verdict("latency", False, "50% <slower>, as\n\x1b[31m said", {})


def test_a_junit_file_has_a_case_for_each_verdict_whatever_the_words() -> None:
    suite = ElementTree.fromstring(junit("a&b.onnx", [ODD, *judged(FOUND, 0.05, 1e-4, 0.1)[1:]]))
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "3", "1")
    assert [one.get("name") for one in suite] == ["latency", "error", "size"]
    failure = suite[0].find("failure")
    assert failure is not None
    assert failure.text == "50% <slower>, as\n?[31m said"
    assert suite[0].get("classname") == "a&b.onnx"
    assert suite[1].find("failure") is None


def test_an_annotation_is_one_line_in_which_nothing_is_taken_for_a_command() -> None:
    assert annotation("a:b,c.onnx", ODD) == (
        "::error title=latency of a%3Ab%2Cc.onnx::50%25 <slower>, as%0A\x1b[31m said"
    )
    assert annotation("m", failed_to_compile("no\nmore")) == "::error title=compile of m::no"
    assert annotation("m", judged(FOUND, 0.05, 1e-4, 0.1)[2]).startswith("::notice title=size of m::1000 bytes")
