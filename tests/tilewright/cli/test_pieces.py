"""`--pieces`: bare elements go where they are sent, while they are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.errors import UsageError

Command = Callable[..., Any]
PIECES = (np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32))
BYTES = b"".join(piece.astype("<f4").tobytes() for piece in PIECES)


class Speaking:
    """A model that gives two pieces; with `fails` it does not come to the second."""

    bindings = ()
    errors = (RuntimeError,)
    fails = False

    def __enter__(self) -> Speaking:
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def random_inputs(self, seed: int) -> dict[str, Any]:
        return {"seed": seed}

    def chunks(self, inputs: dict[str, Any], seed: int | None = None) -> Iterator[Any]:
        assert inputs == {"seed": 5}
        assert seed == 5
        yield PIECES[0]
        if self.fails:
            raise RuntimeError("it broke. Fix: mend it")
        yield PIECES[1]


@pytest.fixture(autouse=True)
def speaking(monkeypatch: pytest.MonkeyPatch) -> Speaking:
    model = Speaking()
    monkeypatch.setattr(tilewright, "load", lambda path: model)
    return model


def test_pieces_go_to_standard_output_and_what_is_said_of_them_does_not(command: Command) -> None:
    done = command("run", "voice.tw", "--pieces", "-", "--seed", 5, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes == BYTES
    assert "pieces: 2 of float32; the first after" in done.stderr


def test_pieces_go_to_a_file_that_is_there_whole_or_not_at_all(
    command: Command, speaking: Speaking, tmp_path: Path
) -> None:
    sound = tmp_path / "sound"
    done = command("run", "voice.tw", "--pieces", sound, "--seed", 5, "--json")
    assert done.exit_code == 0, done.output
    assert sound.read_bytes() == BYTES
    said = json.loads(done.stdout)
    assert (said["pieces"], said["dtype"]) == (2, "float32")
    speaking.fails = True
    done = command("run", "voice.tw", "--pieces", tmp_path / "other", "--seed", 5)
    assert done.exit_code == UsageError.exit_status
    assert "it broke" in done.stderr
    assert "Fix: mend it" in done.stderr
    assert [*tmp_path.iterdir()] == [sound]


@pytest.mark.parametrize("other", [("-o", "out.npz"), ("--bench",)])
def test_pieces_go_without_what_runs_all_of_it(command: Command, tmp_path: Path, other: tuple[str, ...]) -> None:
    done = command("run", "voice.tw", "--pieces", tmp_path / "sound", *other)
    assert done.exit_code == UsageError.exit_status
    assert "goes without --" in done.stderr
    assert not (tmp_path / "sound").exists()
