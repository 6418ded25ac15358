"""Where a result is to go is looked at before anything is asked of the server, and any terminal can show it."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tilewright.fake_server import ARTIFACT
from tilewright import cli
from tilewright.cli import output
from tilewright.errors import UsageError
from tilewright.files import whole

COMMANDS: dict[str, tuple[str, ...]] = {
    "compile": ("MODEL",),
    "download": (ARTIFACT,),
    "attest": (ARTIFACT,),
    "signer": (),
    "redeploy": (ARTIFACT, "MODEL"),
    "quantize": ("MODEL", "--samples", "MODEL"),
    "infer": (ARTIFACT, "MODEL"),
    "run": ("MODEL",),
    "timeline": ("MODEL",),
}


@pytest.mark.parametrize("place", ["none/result.tw", "file/result.tw"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_that_cannot_be_written_is_found_before_the_work(
    name: str, place: str, command: Callable[..., Any], server: Any, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / place
    words = [model if word == "MODEL" else word for word in COMMANDS[name]]
    done = command(name, *words, "-o", target, "--json")
    assert done.exit_code == 2, done.output
    assert str(target) in done.stdout
    assert server.seen == []


def test_a_full_disk_is_not_told_as_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No space left") as caught, whole(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "free some disk space" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_of_ascii_gets_what_it_has_no_letter_for_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    cli.accept_all_letters()
    output.results().print("出 caf\udce9")
    terminal.flush()
    assert terminal.buffer.getvalue() == rb"\u51fa caf\udce9" + b"\n"
