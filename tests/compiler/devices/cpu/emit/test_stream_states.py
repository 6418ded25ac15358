"""States that the runtime of parts carries from frame to frame, around libraries that take as long as they like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import compile_library, host_headers
from compiler.devices.cpu.emit.stream import emit_stream
from compiler.devices.cpu.target import this_machine
from compiler.ir.plans.lanes import NOTHING
from compiler.pack.loader import Binding, Frame, RunError, TensorSpec
from compiler.pack.loader.frames import _Frames
from compiler.pack.loader.specs import _aligned
from compiler.schedule.parts.dividing import division_of, parts_of
from compiler.schedule.parts.portions import portion
from tests.compiler.devices.cpu.emit.test_stream import TOOLCHAIN, Built
from tests.compiler.schedule.parts.test_states import recurrent

SHAPE = (6, 4)
TAKES = (TensorSpec("x", "float32", SHAPE), TensorSpec("h", "float32", SHAPE))
GIVES = (TensorSpec("y", "float32", SHAPE), TensorSpec("next", "float32", SHAPE))
BINDING = Binding(1, {}, TAKES, GIVES)
CALLS = recurrent((0,), (2, 1), (3,), outputs=(4, 3))
"""x -> a; a, h -> next; next -> y."""
STUB = (Path(__file__).parent / "part_with_state.c").read_text()
POISON = 1000.0


def made(folder: Path, stages: list[tuple[int, int]]) -> Built:
    """The three calls in three stages."""
    division = division_of(CALLS, [[1.0] * 3] * 2, NOTHING, carried=[(1, 1)])
    parts = parts_of(CALLS, ("one", "other"), division, stages, "by hand")
    portions = [portion(CALLS, parts, part) for part in parts.parts]
    folders = [f"parts/{part.calls[0]}/" for part in parts.parts]
    stream = emit_stream(CALLS, parts, portions, [0, 1], folders, this_machine(), TOOLCHAIN)
    members = {"stream.so": stream.library}
    for part, own, into in zip(parts.parts, portions, folders, strict=True):
        source = f"#define CALL {part.calls[0]}\n#define INS {len(own.inputs)}\n{STUB}"
        members[f"{into}model.so"] = compile_library({"part.c": source}, host_headers(), this_machine(), TOOLCHAIN)
    weights = folder / "weights.bin"
    weights.write_bytes(b"")
    described = {
        "frames": parts.frames,
        "devices": [{"name": name} for name in parts.devices],
        "parts": [{"folder": into} for into in folders],
        "carried": [{"output": "next", "input": "h"}],
    }
    return Built(members, {"stream": described}, weights, dict(stream.sources))


@pytest.fixture(scope="module", params=["crossing", "shared"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The state goes to another core and back, or through replicas that have frames in turn."""
    middle = [(1, 0b010)] if request.param == "crossing" else [(0, 0b010), (1, 0b010)]
    return made(tmp_path_factory.mktemp("states"), [(0, 0b001), *middle, (0, 0b100)])


@pytest.fixture
def frames(built: Built) -> Iterator[_Frames]:
    opened = _Frames(built, None, BINDING)  # type: ignore[arg-type]
    yield opened
    opened.close()


def begin(frames: _Frames, x: float, h: float | None = None, poison: float = 0.0) -> Frame:
    given = np.full(SHAPE, x, np.float32)
    given[0, 1] = poison
    state = None if h is None else np.full(SHAPE, h, np.float32)
    results = [_aligned(spec) for spec in GIVES]
    seat = frames.seat()
    seat.aim(seat.copied([given, state]), results)
    return Frame(frames, frames.submit(seat, results), GIVES, results)


def demand(frame: Frame, state: float) -> None:
    found = frame.result()
    assert found["next"][5, 3] == state
    assert found["y"][5, 3] == state + 2


def test_each_frame_finds_the_state_of_the_one_before_zeros_at_first_and_what_it_is_given(frames: _Frames) -> None:
    state, states, begun = 0.0, list[float](), list[Frame]()
    for at in range(150):
        given = 7.0 * at if at % 50 == 40 else None
        state = (state if given is None else given) + at % 10 + 1
        states.append(state)
        begun.append(begin(frames, float(at % 10), given))
    for frame, expected in zip(begun, states, strict=True):
        demand(frame, expected)


def test_a_frame_that_fails_before_its_state_is_made_leaves_none_until_one_is_given(frames: _Frames) -> None:
    demand(begin(frames, 1.0), 2.0)
    lost = [begin(frames, 1.0, poison=POISON + 1), begin(frames, 1.0), begin(frames, 1.0)]
    again = [begin(frames, 1.0, 5.0), begin(frames, 1.0)]
    with pytest.raises(RunError, match="frame 1 failed: poisoned"):
        lost[0].result()
    for number, frame in enumerate(lost[1:], 2):
        said = (
            f"frame {number} failed: the state of input 1 is lost, since frame {number - 1} failed before it was made"
        )
        with pytest.raises(RunError, match=said):
            frame.result()
    demand(again[0], 7.0)
    demand(again[1], 9.0)


def test_a_frame_that_fails_behind_its_state_fails_alone(frames: _Frames) -> None:
    begun = [begin(frames, 1.0), begin(frames, 1.0, poison=POISON + 2), begin(frames, 1.0)]
    demand(begun[0], 2.0)
    with pytest.raises(RunError, match="frame 1 failed: poisoned"):
        begun[1].result()
    demand(begun[2], 6.0)


def test_an_input_that_is_no_state_needs_data(frames: _Frames) -> None:
    seat = frames.seat()
    results = [_aligned(spec) for spec in GIVES]
    seat.aim([None, *seat.copied([np.zeros(SHAPE, np.float32)] * 2)[1:]], results)
    with pytest.raises(RunError, match="input 0 has no data"):
        frames.submit(seat, results)
