from __future__ import annotations

import argparse
import io

import pytest
from rich.console import Console

from bench.ending import INTERRUPTED, ended
from bench.zoo import NoSuchNetwork
from compiler.errors import ToolchainMissing
from tilewright.errors import UsageError

PARSER = argparse.ArgumentParser(prog="bench")


def ends_with(error: BaseException | None) -> tuple[int, str]:
    """The exit status of a measurement that ends so, and what is said."""
    said = io.StringIO()

    def measure() -> int:
        if error:
            raise error
        return 7

    return ended(measure, PARSER, Console(file=said, width=200)), said.getvalue()


def test_a_measurement_ends_with_its_own_status() -> None:
    assert ends_with(None) == (7, "")


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("too few cores", fix="free one"), 2), (ToolchainMissing("no compiler", fix="free one"), 1)],
)
def test_what_goes_wrong_is_told_with_its_fix(error: Exception, status: int) -> None:
    found, said = ends_with(error)
    assert found == status
    assert said.endswith("Fix: free one\n")


def test_a_name_that_no_network_has_is_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        ends_with(NoSuchNetwork("no network of this name"))
    assert "no network of this name" in capsys.readouterr().err


def test_whoever_interrupts_is_told_so() -> None:
    assert ends_with(KeyboardInterrupt()) == (INTERRUPTED, "interrupted\n")
