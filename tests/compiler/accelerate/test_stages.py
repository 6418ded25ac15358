"""Pipelines of parts: what each waits for is enough, no more than that, and costs no throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from compiler.accelerate.stages import Stages
from compiler.errors import VerifyError
from compiler.ir.plans.parts import After

CHAIN = Stages.of([(1, ["x"], ["a"]), (0, ["a"], ["b", "y"]), (1, ["b", "a"], ["z"])], ["x"])


def _drawn(random: Random) -> Stages:
    """Parts of both devices in turn; each reads what the one before makes, and some what earlier ones do."""
    first = random.randrange(2)
    parts = []
    for at in range(random.randint(2, 8)):
        others = {f"t{random.randint(0, at)}" for _ in range(random.choice((0, 0, 1)))}
        parts.append(((first + at) % 2, sorted({f"t{at}"} | others), [f"t{at + 1}"]))
    return Stages.of(parts, ["t0"])


def _ends(pipeline: Stages, seconds: Sequence[float], frames: int) -> list[float]:
    """When each frame has ended, by a timeline in which devices take of what may begin that of the earliest round."""
    stages = pipeline.stages
    ended: list[list[float]] = [[] for _ in stages]
    free = {one.device: 0.0 for one in stages}

    def next_of(device: int) -> tuple[float, int, int]:
        ready = []
        for at, one in enumerate(stages):
            frame = len(ended[at])
            waits = [(after.part, frame - after.frames) for after in one.after if frame >= after.frames]
            if at == 0 and frame >= pipeline.frames:  # the caller waits while so many are in flight
                waits.append((len(stages) - 1, frame - pipeline.frames))
            if one.device == device and frame < frames and all(len(ended[other]) > earlier for other, earlier in waits):
                begin = max([free[device], *(ended[other][earlier] for other, earlier in waits)])
                ready.append((begin, frame + at, at))
        return min(ready, default=(float("inf"), 0, 0))

    for _ in range(frames * len(stages)):
        begin, _, at = min(map(next_of, free))
        ended[at].append(begin + seconds[at])
        free[stages[at].device] = begin + seconds[at]
    return ended[-1]


@pytest.mark.parametrize("seed", range(40))
def test_a_frame_ends_as_often_as_the_busiest_device_has_done_one(seed: int) -> None:
    random = Random(seed)
    pipeline = _drawn(random)
    pipeline.verify()
    seconds = [random.random() ** 2 + 0.01 for _ in pipeline.stages]
    devices = [one.device for one in pipeline.stages]
    load = max(sum(own for own, on in zip(seconds, devices, strict=True) if on == device) for device in (0, 1))
    settled = 4 * pipeline.frames
    ends = _ends(pipeline, seconds, 3 * settled)
    assert (ends[2 * settled] - ends[settled]) / settled == pytest.approx(load, rel=1e-9)


def test_fewer_frames_in_flight_than_stages_leave_a_device_without_work() -> None:
    """What may be in flight is one more, for the caller: it is the least that costs no throughput."""
    seconds = [1.0, 1.0, 1.0, 1.0]
    pipeline = Stages.of([(at % 2, [f"t{at}"], [f"t{at + 1}"]) for at in range(4)], ["t0"])
    periods = {}
    for frames in (3, 4, pipeline.frames):
        ends = _ends(_Fewer(pipeline.stages, pipeline.given, most=frames), seconds, 60)
        periods[frames] = (ends[40] - ends[20]) / 20
    assert pipeline.frames == 5
    assert periods[3] == pytest.approx(2.5)
    assert periods[4] == periods[5] == pytest.approx(2.0)


@dataclass(frozen=True)
class _Fewer(Stages):
    most: int = 1

    @property
    def frames(self) -> int:
        return self.most


@pytest.mark.parametrize("seed", range(20))
def test_a_state_is_read_once_the_frame_before_has_made_it(seed: int) -> None:
    random = Random(seed)
    plain = _drawn(random)
    reads, makes = sorted(random.choices(range(len(plain.stages)), k=2))
    parts = [
        (one.device, (*one.inputs, *(["state"] if at == reads else [])), one.outputs)
        for at, one in enumerate(plain.stages)
    ]
    pipeline = Stages.of(parts, ["t0", "state"], [(plain.stages[makes].outputs[0], "state")])
    pipeline.verify()
    awaited = After(makes, 1)
    assert (awaited in pipeline.stages[reads].after) == (reads != makes)
    seconds = [random.random() ** 2 + 0.01 for _ in parts]
    settled = 4 * pipeline.frames
    ends = _ends(pipeline, seconds, 3 * settled)
    load = max(sum(own for own, one in zip(seconds, parts, strict=True) if one[0] == device) for device in (0, 1))
    least = max(load, sum(seconds[reads : makes + 1]))
    period = (ends[2 * settled] - ends[settled]) / settled
    assert period >= least * (1 - 1e-9)
    if load >= sum(seconds[reads : makes + 1]) and reads == makes:
        assert period == pytest.approx(load)
    if reads != makes:
        fewer = replace(
            pipeline.stages[reads], after=tuple(one for one in pipeline.stages[reads].after if one != awaited)
        )
        broken = replace(pipeline, stages=(*pipeline.stages[:reads], fewer, *pipeline.stages[reads + 1 :]))
        with pytest.raises(VerifyError, match=f"stage {reads} may read a state of frame 1 before {makes} has made it"):
            broken.verify()


def test_edges_have_a_slot_for_each_round_between_who_writes_and_who_reads_last() -> None:
    assert CHAIN.edges == {"a": 3, "b": 2}
    assert [one.after for one in CHAIN.stages] == [
        (After(1, 3), After(2, 3)),
        (After(0, 0), After(2, 2)),
        (After(0, 0), After(1, 0)),
    ]
    CHAIN.verify()


@pytest.mark.parametrize("seed", range(12))
def test_what_a_stage_waits_for_is_no_more_than_it_needs(seed: int) -> None:
    """Without a wait that no other one implies something is read too early, or written while it is read."""
    pipeline = _drawn(Random(seed))
    needed = 0
    for at, one in enumerate(pipeline.stages):
        for left_out in one.after:
            fewer = replace(one, after=tuple(wait for wait in one.after if wait != left_out))
            broken = replace(pipeline, stages=(*pipeline.stages[:at], fewer, *pipeline.stages[at + 1 :]))
            try:
                broken.verify()
            except VerifyError:
                needed += 1
    assert needed >= len(pipeline.stages) - 1


@pytest.mark.parametrize(
    ("at", "change", "said"),
    [
        (1, {"after": (After(2, 2),)}, "stage 1 may read 'a' of frame 0 before it is made"),
        (0, {"after": (After(1, 3),)}, "stage 0 may write 'a' for frame 3 while 2 reads"),
        (1, {"after": (After(0, 0), After(2, 3))}, "stage 1 may write 'b' for frame 2 while 2 reads"),
        (1, {"after": (After(2, 0),)}, "stage 1 waits for part 2, which may never come"),
        (0, {"inputs": ("b",)}, "stage 0 `.*` reads 'b', which no stage before it makes"),
        (2, {"outputs": ("b",)}, "stage 2 `.*` makes 'b', which is made already"),
        (2, {"outputs": ("x",)}, "stage 2 `.*` makes 'x', which is made already"),
    ],
)
def test_stages_that_could_disturb_each_other_are_found(at: int, change: dict[str, object], said: str) -> None:
    stages = [*CHAIN.stages]
    stages[at] = replace(stages[at], **change)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match=said):
        replace(CHAIN, stages=tuple(stages)).verify()
