from __future__ import annotations

import base64
import random
import zlib

import pytest

from compiler.ir.plans.plan import Task
from compiler.steps.planning.spans import UNIT_S, pack_spans, unpack_spans
from tests.seeds import each


def traced(seed: int, lanes: int, count: int) -> tuple[list[Task], list[tuple[float, float]]]:
    """Tasks of a few microseconds on lanes, a little after each other.

    Medians may put an end after the next beginning.
    """
    chance = random.Random(seed)
    free = [0.0] * lanes
    tasks, spans = [], []
    for at in range(count):
        lane = chance.randrange(lanes)
        begin = max(0.0, free[lane] + chance.uniform(-5e-8, 4e-7))
        free[lane] = begin + chance.lognormvariate(-12, 1)
        tasks.append(Task(at, lane, 0, 1))
        spans.append((begin, free[lane]))
    return tasks, spans


@each(range(10))
def test_spans_come_back_to_within_a_unit(seed: int) -> None:
    tasks, spans = traced(seed, 1 + seed % 8, 50 * seed)
    back = unpack_spans(tasks, pack_spans(tasks, spans))
    assert len(back) == len(spans)
    for one, other in zip(back, spans, strict=True):
        assert one == pytest.approx(other, abs=0.51 * UNIT_S)
    assert pack_spans(tasks, back) == pack_spans(tasks, spans)


def test_a_task_takes_few_characters() -> None:
    tasks, spans = traced(0, 2, 600)
    assert len(pack_spans(tasks, spans)) < 5 * 600


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "no base 64!",
        base64.b64encode(b"not deflated").decode(),
        base64.b64encode(zlib.compress(bytes([0, 0]))).decode(),
        base64.b64encode(zlib.compress(bytes([0, 0, 0, 128]))).decode(),
        base64.b64encode(zlib.compress(bytes([1, 2, 0, 0]))).decode(),
        base64.b64encode(zlib.compress(bytes([0, 1, 0, 0]))).decode(),
        base64.b64encode(zlib.compress(bytes([255] * 30))).decode(),
        base64.b64encode(zlib.compress(bytes([255] * 10 + [1, 0, 0, 0]))).decode(),
        base64.b64encode(zlib.compress(bytes(1 << 20))).decode(),
        base64.b64encode(zlib.compress(bytes([0, 0, 0, 0]))[:-3]).decode(),
        "é",
    ],
)
def test_what_cannot_be_spans_of_the_plan_is_none(text: object) -> None:
    """Text of another plan, cut off, too long, negative, or no text.

    A beginning before the run and a length below nothing.
    """
    assert unpack_spans([Task(0, 0, 0, 1), Task(1, 1, 0, 1)], text) == ()


def test_a_plan_without_tasks_has_no_spans() -> None:
    assert unpack_spans([], pack_spans([], [])) == ()
