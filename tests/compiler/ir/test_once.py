from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from compiler.ir.index import Axis, Index
from compiler.ir.once import once

ROOT = Path(__file__).parents[3]


class Square:
    def __init__(self, side: int) -> None:
        self.side = side
        self.asked = 0

    @once
    def area(self) -> int:
        """Of the square."""
        self.asked += 1
        return self.side * self.side


def test_a_value_is_computed_once_for_each_object() -> None:
    three, four = Square(3), Square(4)
    assert (three.area, four.area, three.area) == (9, 16, 9)
    assert (three.asked, four.asked) == (1, 1)
    assert isinstance(Square.area, once)
    assert Square.area.__doc__ == "Of the square."


def test_the_hash_of_an_index_is_that_of_the_process_it_is_in() -> None:
    """Hashes of names differ from process to process."""
    i, j = Index.of(Axis("i", 6)), Index.of(Axis("j", 4))
    whole = (i * 4 + j + 1) // 3 * 2 + (i * 4 + j + 1) % 3
    assert hash(whole) == hash(pickle.loads(pickle.dumps(whole)))
    program = """if True:
        import pickle, sys
        from compiler.ir.index import Axis, Index
        found = pickle.load(sys.stdin.buffer)
        i, j = Index.of(Axis("i", 6)), Index.of(Axis("j", 4))
        whole = (i * 4 + j + 1) // 3 * 2 + (i * 4 + j + 1) % 3
        assert found == whole and hash(found) == hash(whole), (found, whole)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "123"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(whole), env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
