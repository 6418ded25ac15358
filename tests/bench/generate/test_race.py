from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.engines.driver import EngineFailed
from bench.generate.child import Served, resident_bytes
from bench.generate.process import Contender, Running
from bench.generate.race import Timed, race

ANSWERING = """
    import json, sys
    print(json.dumps({"memory": 1}), flush=True)
    asked = 0
    for line in sys.stdin:
        request = json.loads(line)
        asked += 1
        if asked > LIMIT:
            sys.exit("it is " + "over")
        count = request.get("go", 1)
        took = [SECONDS * (at + 1) for at in range(count)]
        times = {"cpu": took, "wall": [10 * one for one in took], "waited": 0.0}
        print(json.dumps({"tokens": [7] * count, "memory": asked, **times}), flush=True)
"""


def program(name: str, folder: Path, seconds: float, limit: int = 99) -> Contender:
    file = folder / f"{name}.py"
    text = textwrap.dedent(ANSWERING).replace("SECONDS", str(seconds)).replace("LIMIT", str(limit))
    file.write_text(text)
    return Contender(name, [sys.executable, str(file)], folder, 1)


def test_each_contender_reads_the_prompt_once_a_sitting_and_goes_on_in_each_round(tmp_path: Path) -> None:
    found = race([program("a", tmp_path, 1.0), program("b", tmp_path, 2.0)], [1, 2], 3, 1, rounds=3, sittings=2)
    a, b = found["a"], found["b"]
    assert isinstance(a, Timed)
    assert isinstance(b, Timed)
    assert (a.first, b.first) == ((1.0, 1.0), (2.0, 2.0))
    assert a.tokens == ((1.0, 2.0, 3.0),) * 3
    assert a.medians == [2.0] * 3
    assert (a.ms.median, a.memory) == (2000.0, 3)
    assert b.over(a).value == 2.0


def test_of_several_threads_the_clock_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: None)
    found = race([program("a", tmp_path, 1.0)], [1], 1, 2, rounds=1, sittings=1)["a"]
    assert isinstance(found, Timed)
    assert (found.first, found.tokens) == ((10.0,), ((10.0,),))


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_one_that_ends_is_said_to_and_the_others_go_on(limit: int, tmp_path: Path) -> None:
    found = race([program("a", tmp_path, 1.0, limit), program("b", tmp_path, 2.0)], [1], 2, 1, rounds=4, sittings=2)
    assert found["a"] == "a cannot run the model: it is over"
    assert isinstance(found["b"], Timed)
    assert len(found["b"].tokens) == 4


def test_a_program_that_never_begins_says_nothing(tmp_path: Path) -> None:
    silent = Contender("silent", [sys.executable, "-c", ""], tmp_path, 0)
    with (
        pytest.raises(EngineFailed, match="silent cannot run the model: it said nothing"),
        Running(silent, tmp_path / "log"),
    ):
        pass


class Counting:
    """The next token is the number of those read; `lengths` are those that it was taken back to."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.lengths: list[int] = []

    def read(self, ids: Any) -> Any:
        self.ids += ids
        logits = np.zeros(50, np.float32)
        logits[len(self.ids)] = 1
        return logits

    def rewind(self, length: int) -> None:
        self.ids = self.ids[:length]
        self.lengths.append(length)


def test_every_round_goes_on_from_the_end_of_the_prompt(tmp_path: Path) -> None:
    session = Counting()
    served = Served(session)
    first = served.answer({"read": [4, 5, 6]})
    assert first["tokens"] == [3]
    assert len(first["wall"]) == len(first["cpu"]) == 1
    for _ in range(2):
        again = served.answer({"go": 3})
        assert again["tokens"] == [4, 5, 6]
        assert session.ids == [4, 5, 6, 3, 4, 5]
    assert session.lengths == [0, 3, 3]
    assert len(again["cpu"]) == 3
    file = tmp_path / "logits.npy"
    assert served.answer({"go": 2, "logits": str(file)})["tokens"] == [4, 5]
    assert np.load(file).argmax(1).tolist() == [3, 4, 5]
    assert served.answer({"read": [1]})["tokens"] == [1]
    json.dumps(again)


def test_resident_memory_grows_with_what_is_written() -> None:
    before = resident_bytes()
    block = np.ones(32 << 20, np.uint8)
    assert resident_bytes() - before > block.size / 2
