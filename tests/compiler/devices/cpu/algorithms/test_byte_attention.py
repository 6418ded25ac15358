"""Attention of bytes against whole numbers and a softmax in float64, under tiles that are proposed and any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.algorithms.byte_attention import byte_attention_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here, this_machine
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.fuse.byte_attentions import Form, forms, join_of

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
I8, U8 = DType.I8, DType.U8


@dataclass(frozen=True)
class Asked:
    """A form, its operands, and the joined kernel on them, whose result may be [batch, tokens, heads, width]."""

    form: Form
    found: list[np.ndarray]
    case: Case
    turned: bool

    @property
    def wanted(self) -> tuple[np.ndarray, np.ndarray]:
        """What it gives, and by how much each element may differ."""
        want, slack = self.form.wanted(self.found)
        return (want.transpose(0, 2, 1, 3), slack.transpose(0, 2, 1, 3)) if self.turned else (want, slack)


def asked(form: Form, seed: int = 0) -> Asked:
    """Without a tile."""
    kernels, join = join_of(form)
    call = join.call
    assert isinstance(call.kernel, Kernel)
    found = form.inputs(seed)
    given = dict(zip(kernels.inputs, form.laid_out(found), strict=True))
    storages = {kernels.buffers[id].storage: array for id, array in given.items()}
    arrays = []
    for id in call.inputs:
        array, buffer = storages[kernels.buffers[id].storage], kernels.buffers[id]
        steps = tuple(step * array.itemsize for step in buffer.strides)
        flat = array.reshape(-1)[buffer.offset :]
        arrays.append(np.lib.stride_tricks.as_strided(flat, buffer.type.dims, steps))
    buffers = tuple(geometry(kernels.buffers[id]) for id in (*call.inputs, *call.outputs))
    turned = form.split and call.outputs[0] in kernels.outputs
    return Asked(form, found, Case(call.kernel, buffers, tuple(arrays)), turned)


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget) -> Asked:
    """Under a tile that is proposed or small blocks, of which the last ones are shorter."""
    made = asked(draw(forms()), draw(st.integers(0, 2**16)))
    options = [one.tile for one in byte_attention_tiles(made.case.workload, target, draw(st.sampled_from([1, 2, 7])))]
    tile = draw(st.one_of(st.sampled_from(options), odd_tiles(target)))
    cuts = tuple(draw(st.lists(st.floats(0, 1), max_size=2)))
    return replace(made, case=replace(made.case, tile=tile, cuts=cuts))


@st.composite
def odd_tiles(draw: st.DrawFn, target: CpuTarget) -> Tile:
    width = st.integers(1, 3).map(lambda vectors: vectors * target.vector_floats)
    return Tile(
        "byte_attention",
        (
            Level("lane", (("m", draw(st.integers(5, 40))),)),
            Level("block", (("m", draw(st.integers(3, 12))),)),
            Level("register", (("m", draw(st.integers(1, 6))), ("n", draw(width)))),
            Level("vector", (("m", draw(st.integers(1, 6))), ("n", draw(width)))),
        ),
    )


def check(drawn: Sequence[Asked], target: CpuTarget) -> None:
    """Every element is what whole numbers say, but for weights near to a tie."""
    library = Library.of([one.case for one in drawn], target, "-O1")
    for number, one in enumerate(drawn):
        (got,), (want, slack) = library.run(number, one.case), one.wanted
        assert got.shape == want.shape
        apart = np.abs(got.astype(np.float64) - want)
        text = f"{one.form}\n{one.case}\n{library.lowered[number].text}"
        assert (apart <= slack * (1 + 1e-6) + 1e-6 * np.abs(want)).all(), text


def test_attention_of_bytes_under_any_tile_split_anywhere_is_what_whole_numbers_say() -> None:
    drawn = draws(cases(this_machine()), 24)
    exact = [float(np.mean(slack == 0)) for _, slack in (one.wanted for one in drawn)]
    assert np.mean(exact) > 0.9, "most results have no weight near to a tie"
    check(drawn, this_machine())


@pytest.mark.parametrize("name", HERE[1:])
def test_it_is_with_other_instructions_and_widths_of_vectors(name: str) -> None:
    target = resolve(name)
    check(draws(cases(target), 6), target)


ENDS = (
    Form(),
    Form(zeros=(255, 255, 0, 255)),
    Form(zeros=(0, 0, 255, 0), mask="hidden"),
    Form(dtypes=(I8, I8, I8, I8), zeros=(-128, 127, -128, 127)),
    Form(dtypes=(I8, U8, U8, I8), zeros=(127, 0, 0, 0), mask="hidden", scored=True),
    Form(dtypes=(U8, I8, I8, U8), zeros=(0, 0, 127, 128), last=True),
)


@pytest.mark.parametrize("name", HERE)
def test_zero_points_at_both_ends_and_rows_that_are_hidden(name: str) -> None:
    check(ends(resolve(name)), resolve(name))


def ends(target: CpuTarget) -> list[Asked]:
    """Each of ENDS under the tile that is proposed first."""
    made = [asked(form) for form in ENDS]
    return [replace(one, case=replace(one.case, tile=_first(one.case, target))) for one in made]


def test_what_zero_points_do_not_need_is_not_computed() -> None:
    target = next(profile for profile in PROFILES if profile.multiplies_bytes)
    bare = asked(Form(dtypes=(U8, I8, U8, I8), zeros=(0, 0, 0, 0))).case
    full = asked(Form(zeros=(130, 130, 3, 130))).case
    texts = [lower("k0_case", case.workload, _first(case, target), target).text for case in (bare, full)]
    names = ("keys_terms", "queries_terms", "values_terms", "weights_terms")
    assert [[name in text for name in names] for text in texts] == [[False] * 4, [True] * 4]


def test_a_target_without_dot_products_of_bytes_multiplies_16_bit_integers() -> None:
    target = next(profile for profile in PROFILES if not profile.multiplies_bytes)
    case = asked(Form(zeros=(130, 130, 3, 130))).case
    text = lower("k0_case", case.workload, _first(case, target), target).text
    assert "tw_dot_halves" in text
    assert "tw_dot_bytes" not in text
    assert "_terms" not in text


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_tiles_fit_the_target(profile: CpuTarget) -> None:
    case = asked(Form(queries=197, keys=197, depth=64, columns=64, heads=3)).case
    options = byte_attention_tiles(case.workload, profile, 2)
    assert {option.tile.algorithm for option in legal_tiles(case.workload, profile, 2, "fp32")} == {"byte_attention"}
    for option in options:
        for level in ("register", "vector"):
            rows, panel = option.tile.extent(level, "m"), option.tile.extent(level, "n")
            assert panel % profile.vector_floats == 0
            assert (rows + 1) * (panel // profile.vector_floats) < profile.vector_registers
        assert option.seconds > 0


def test_scores_of_many_keys_stay_in_a_cache() -> None:
    target = this_machine()
    blocks = []
    for keys in (64, 32_768):
        case = asked(Form(heads=1, queries=64, keys=keys, depth=4, columns=4)).case
        blocks.append(byte_attention_tiles(case.workload, target, 1)[0].tile.extent("block", "m"))
    assert blocks[1] < blocks[0]


def _first(case: Case, target: CpuTarget) -> Tile:
    return byte_attention_tiles(case.workload, target, 1)[0].tile
