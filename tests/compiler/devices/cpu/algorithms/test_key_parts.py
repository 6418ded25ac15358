"""Attention of few queries in parts of its keys: what the kernel of parts leaves, added up, is what all keys give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.codegen.calls import geometry
from compiler.devices.cpu.algorithms.few_queries import few_queries_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.forms.attention import RUN
from compiler.fuse.attention.key_parts import KeyParts, in_key_parts
from compiler.ir.buffers import Call
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, Library, draws
from tests.compiler.devices.cpu.wide import in_float64
from tests.compiler.fuse.attention.test_key_parts import LONG, attention_of
from tests.compiler.fuse.few_queries import Form, forms


@dataclass(frozen=True)
class Cut:
    """A call, the same with its keys in parts, a case of the kernel of these, and all that is read, by buffer."""

    call: Call
    parts: KeyParts
    case: Case
    given: Mapping[int, np.ndarray]

    @staticmethod
    def of(form: Form, seed: int, count: int, target: CpuTarget) -> Cut | None:
        """None where keys are not cut."""
        kernels, call = attention_of(form)
        parts = in_key_parts(kernels, call, count)
        if parts is None:
            return None
        random = np.random.default_rng(seed)
        given = {
            id: kernels.constants[id] if id in kernels.constants else form.array(kernels.buffers[id].type, random)
            for id in dict.fromkeys((*call.inputs, *parts.parts.inputs))
        }
        buffers = {**kernels.buffers, **{buffer.id: buffer for buffer in parts.buffers}}
        kernel = parts.parts.kernel
        assert isinstance(kernel, Kernel)
        bound = tuple(geometry(buffers[id]) for id in (*parts.parts.inputs, *parts.parts.outputs))
        case = Case(kernel, bound, tuple(given[id] for id in parts.parts.inputs))
        (proposal,) = few_queries_tiles(case.workload, target, 2)
        return Cut(call, parts, replace(case, tile=proposal.tile), given)

    def placed(self, place: int, beyond: float | None = None) -> Cut:
        """With a place for all that is one; keys and values behind it are a number."""
        given = {}
        for id, array in self.given.items():
            changed = np.full_like(array, place) if array.dtype == np.int64 else array.copy()
            if beyond is not None and array.ndim == 5 and LONG.keys in array.shape:
                np.moveaxis(changed, array.shape.index(LONG.keys), 0)[place + 1 :] = beyond
            given[id] = changed
        case = replace(self.case, inputs=tuple(given[id] for id in self.parts.parts.inputs))
        return replace(self, case=case, given=given)

    def summed(self, left: Sequence[np.ndarray]) -> np.ndarray:
        """What becomes of what parts left."""
        given = {**self.given, **dict(zip(self.parts.parts.outputs, left, strict=True))}
        kernel = self.parts.whole.kernel
        assert isinstance(kernel, Kernel)
        (result,) = in_float64(kernel, [given[id] for id in self.parts.whole.inputs])
        return result

    def wanted(self) -> np.ndarray:
        """What all keys give."""
        kernel = self.call.kernel
        assert isinstance(kernel, Kernel)
        (result,) = in_float64(kernel, [self.given[id] for id in self.call.inputs])
        return result


@st.composite
def cuts(draw: st.DrawFn, target: CpuTarget) -> Cut:
    form = draw(forms(keys=(RUN + 1, LONG.keys)))
    made = Cut.of(form, draw(st.integers(0, 2**16)), draw(st.sampled_from([2, 2, 3])), target)
    made = made or Cut.of(LONG, 3, 3, target)
    assert made is not None
    return replace(made, case=replace(made.case, cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2)))))


def check(drawn: Sequence[Cut], target: CpuTarget) -> list[np.ndarray]:
    """The results, each as all keys give it."""
    library, found = Library.of([one.case for one in drawn], target, "-O1"), []
    for number, one in enumerate(drawn):
        got, want = one.summed(library.run(number, one.case)), one.wanted()
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
        said = f"{one.case}\n{library.lowered[number].text}"
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5 * largest, err_msg=said)
        found.append(got)
    return found


def test_parts_split_anywhere_add_up_to_all_keys() -> None:
    drawn = draws(cuts(this_machine()), 40)
    assert {DType.BF16, DType.I8} <= {slot.type.dtype for one in drawn for slot in one.case.kernel.inputs}
    assert any(one.call.kernel.outputs[0].type.dims[1] > 1 for one in drawn), "no second query"
    check(drawn, this_machine())


@pytest.mark.parametrize("profile", ["cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_parts_are_right_with_narrower_vectors(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    check(draws(cuts(target), 12), target)


@pytest.mark.parametrize("mask", ["past", "infinite"])
@pytest.mark.parametrize("place", [0, 1, RUN - 1, RUN, RUN + 5, LONG.keys - 2])
def test_keys_behind_the_last_place_are_read_by_no_part(mask: str, place: int) -> None:
    """What is not a number there would show in the results, also of a part that has no key before it."""
    made = Cut.of(replace(LONG, mask=mask, columns=20), 5, 2, this_machine())
    assert made is not None
    (plain,) = check([made.placed(place)], this_machine())
    spoiled = made.placed(place, np.nan)
    library = Library.of([spoiled.case], this_machine(), "-O1")
    np.testing.assert_array_equal(spoiled.summed(library.run(0, spoiled.case)), plain)


@pytest.mark.parametrize("mask", ["past", "infinite"])
def test_a_row_without_any_key_gives_what_all_of_them_masked_give(mask: str) -> None:
    """Their mean where masked scores are a number, else no number."""
    made = Cut.of(replace(LONG, mask=mask), 5, 2, this_machine())
    assert made is not None
    (got,) = check([made.placed(-4)], this_machine())
    assert np.isnan(got).all() if mask == "infinite" else np.isfinite(got).all()
