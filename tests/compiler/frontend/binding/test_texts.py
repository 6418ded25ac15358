"""What a decoder is bound to that carries its caches, where nobody says it."""

from __future__ import annotations

from typing import Any

import pytest

from bench.generate.codes import Coding
from bench.generate.decoder import PAST, SEQUENCE, TOTAL, Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from compiler.contract import CompileOptions
from compiler.frontend import bind_what_is_open
from compiler.ops import OPERATORS
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.steps.test_growing_caches import decoder as grown_by_optimum

POSITIONS = 1000


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    weights = parts(Seeded(SHAPES["tiny"]), Coding.NBITS4)
    made = {str(one): decoder(weights, one, POSITIONS).SerializeToString() for one in Attention}
    return {**made, "optimum": grown_by_optimum(tmp_path_factory.mktemp("m") / "m.onnx").read_bytes()}


def dims_of(model: bytes, dims: Any, **more: Any) -> Any:
    options = CompileOptions.from_json({"carry": "auto", "dims": dims, **more})
    found, notices = bind_what_is_open(model, options, OPERATORS)
    plain = tuple(map(dict, found.dims)) if isinstance(found.dims, tuple) else dict(found.dims)
    return plain, " ".join(notices)


@pytest.mark.parametrize(
    ("kind", "room"),
    [
        ("grouped", {PAST: POSITIONS, TOTAL: POSITIONS}),  # for which there are positions
        ("plain", {PAST: 4096}),
        ("growing", {}),  # caches that grow have the usual room by themselves
        ("optimum", {}),
    ],
)
def test_a_step_has_one_token_and_many_and_caches_have_room_for_a_text(
    models: dict[str, bytes], kind: str, room: dict[str, int]
) -> None:
    dims, said = dims_of(models[kind], {})
    assert dims == tuple({**room, SEQUENCE: size} for size in (1, 16, 64))
    assert "'sequence_length' to 1, 16, 64, a program of each" in said
    assert all(f"'{name}'" in said for name in room)


def test_what_is_given_stays_and_the_rest_follows_from_it(models: dict[str, bytes]) -> None:
    whole = {PAST: 32, TOTAL: 32}
    assert dims_of(models["grouped"], {PAST: 32})[0] == tuple({**whole, SEQUENCE: size} for size in (1, 16, 32))
    assert dims_of(models["grouped"], {SEQUENCE: 1})[0] == {PAST: POSITIONS, TOTAL: POSITIONS, SEQUENCE: 1}
    assert dims_of(models["grouped"], {**whole, SEQUENCE: 4}) == ({**whole, SEQUENCE: 4}, "")
    assert dims_of(models["grouped"], {SEQUENCE: [1, 8]})[0] == tuple(
        {PAST: POSITIONS, TOTAL: POSITIONS, SEQUENCE: size} for size in (1, 8)
    )
    several = {SEQUENCE: [1, 8], **whole}
    assert dims_of(models["grouped"], several) == (({SEQUENCE: 1, **whole}, {SEQUENCE: 8, **whole}), "")
    named = {
        "carry": {f"present.{at}.{part}": f"past_key_values.{at}.{part}" for at in (0, 1) for part in ("key", "value")}
    }
    assert dims_of(models["plain"], {PAST: 32}, **named)[0] == tuple({PAST: 32, SEQUENCE: size} for size in (1, 16, 32))


def test_without_carry_or_with_another_open_dimension_a_model_is_bound_as_any_other(models: dict[str, bytes]) -> None:
    dims, said = dims_of(models["plain"], {}, carry={})
    assert isinstance(dims, dict)
    assert "decoder" not in said
    states = "float[1,2,past,4] past"
    wide = model_of(
        f"m (int64[1,n] ids, float[1,w] x, {states}) => (float[1,2,past,4] present, float[1,w] y, int64[1,n] z) "
        "{ present = Relu(past) y = Relu(x) z = Neg(ids) }"
    )
    assert "decoder" not in dims_of(wide, {})[1]
    assert dims_of(wide, {"w": 3})[0] == tuple({"w": 3, "past": 4096, "n": size} for size in (1, 16, 64))
