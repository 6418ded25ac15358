"""Plans as one persistent kernel, on the double: the bits of launches in every order, and every mistake seen."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.codegen.host_tables import Operand
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.emit import program as emit
from compiler.devices.cuda.emit.launches import Launch
from compiler.devices.cuda.emit.persistent import BLOCK_BYTES, Shape, persistent, refusal
from compiler.devices.cuda.target import resolve
from compiler.errors import VerifyError
from compiler.ir.plans.plan import Plan
from tests.compiler.devices.cuda.artifact_on_double import Twin, artifact_of, modules_of, plan_of
from tests.compiler.devices.cuda.branches import H200, INPUTS, KERNELS, assert_right
from tests.compiler.devices.cuda.emit.test_scheduled_graphs import HOPPER, Network, network, unread_images
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, SCALARS, Mode

pytestmark = needs_nvrtc
AMPERE = "cuda:sm_80"
WHOLE = (("fires", AMPERE, "fp32"), ("cells", HOPPER, "fp16"))
"""Networks, targets and precisions: convolutions that share sums, and windows joined with what reads them."""
ORDERS = (MODES[2], Mode("random", "random", seed=12, resident=3), Mode("random", "late", seed=21, resident=0))
AGAIN = """
for turn in range(3):
    outputs.update({f"{name}/{turn}": array.copy() for name, array in model.run(inputs).items()})
"""
"""Inferences after one another: counts are never cleared."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("persistent")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "compile_units", unread_images)


def persistent_plan(whole: Network, residents: int = 1) -> Plan:
    """Every call after what it reads, on resident blocks."""
    plan = whole.plans.get("streams") or next(iter(whole.plans.values()))
    return replace(plan, residents=residents)


@needs_double
@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("which", WHOLE)
def test_blocks_that_stay_give_the_bits_of_launches(folder: Path, which: tuple[str, str, str]) -> None:
    whole = network(folder, *which, "persistent")
    plan = persistent_plan(whole)
    launched = whole.twin(replace(plan, residents=0), folder).run({"image": whole.image}).outputs["logits"]
    np.testing.assert_allclose(launched, whole.wanted, rtol=2e-2, atol=1e-2 * np.abs(whole.wanted).max())
    twin = whole.twin(plan, folder)
    for mode in ORDERS:
        outcome = twin.run({"image": whole.image}, mode, script=AGAIN)
        assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), mode
        assert sum("cuGraphAddKernelNode" in call for call in outcome.calls) == 1
        assert len(outcome.outputs) == 3
        for found in outcome.outputs.values():
            np.testing.assert_array_equal(found, launched, err_msg=str(mode))


@needs_double
@pytest.mark.usefixtures("unread")
def test_no_access_races_from_inference_to_inference(folder: Path) -> None:
    whole = network(folder, *WHOLE[1], "persistent")
    outcome = whole.twin(persistent_plan(whole, residents=2), folder, "checked").run(
        {"image": whole.image}, ORDERS[1], script=AGAIN
    )
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {})


@needs_double
@pytest.mark.usefixtures("unread")
def test_each_call_is_timed_when_that_is_asked_for_and_at_no_other_time(folder: Path) -> None:
    """The double's clock tells how often it was asked."""
    artifact, text = persistent_source(folder)
    script = """
model.run(inputs)
for turn in range(2):
    outputs[f"seconds{turn}"] = np.array([one["seconds"] for one in model.profile(inputs, repeats=1)])
outputs.update(model.run(inputs))
"""
    outcome = checked(artifact, text).run(INPUTS, ORDERS[1], script=script)
    assert_right(outcome)
    asked = [1e9 * outcome.outputs[f"seconds{turn}"] for turn in range(2)]
    assert all(one.shape == (len(KERNELS.calls),) and (one >= 1).all() for one in asked)
    assert sum("cuMemsetD8Async" in call for call in outcome.calls) == 1 + 2 * 2 * 2


# ---- Mistakes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """A change of the source of a persistent kernel, and how it may show."""

    name: str
    before: str
    after: str
    signs: tuple[str, ...] = ("race",)


BUGS = (
    Bug("no wait", "if (call.first_wait == call.past_wait) return;", "return;"),
    Bug(
        "one of a call's tasks too few is waited for", "(other.past - other.first);", "(other.past - other.first) - 1;"
    ),
    Bug("an earlier inference is waited for", "own->inferences * ", "(own->inferences - 1) * "),
    Bug("a later inference is waited for", "own->inferences * ", "(own->inferences + 1) * ", ("deadlock",)),
    Bug("nothing is acquired", "    (void)tw_load_acquire(count);\n", ""),
    Bug("no barrier behind the wait", "    tw_barrier_sync(TW_TILE_BARRIER, threads);\n", ""),
    Bug(
        "counted before others have stored",
        "if (threadIdx.x == 0) own->turns[turn ^ 1]",
        "if (threadIdx.x == 0) tw_count_release(ended + TW_LINE * now.call), own->turns[turn ^ 1]",
    ),
    Bug(
        "tickets are taken without an atomic",
        "return atomicAdd(tickets.next, 1ull);",
        "return (*tickets.next)++;",
    ),
    Bug(
        "no barrier between two turns",
        "        tw_barrier_sync(TW_TURN_BARRIER, TW_THREADS);\n",
        "",
        ("race", "divergence", "deadlock", "undefined"),
    ),
    Bug("each turn in the same place", "turns[turn ^ 1] =", "turns[turn] =", ("race", "divergence", "deadlock")),
    Bug("not counted", "            tw_count_release(ended + TW_LINE * now.call);\n", "", ("deadlock",)),
)


@lru_cache(maxsize=1)
def persistent_source(folder: Path) -> tuple[Path, str]:
    """An artifact of plain loops, and its kernel with the header that it includes."""
    artifact = artifact_of(KERNELS, replace(plan_of(KERNELS, H200), residents=1), folder / "persistent.tw")
    with zipfile.ZipFile(artifact) as archive:
        text = archive.read("source/kernels_0.cu").decode()
    include = '#include "tw_persistent.h"\n'
    assert text.count(include) == 1
    return artifact, text.replace(include, (SCALARS / "tw_persistent.h").read_text().replace("#pragma once", ""))


def checked(artifact: Path, text: str) -> Twin:
    """The artifact with its kernel replaced by a text."""
    with zipfile.ZipFile(artifact) as archive:
        library = archive.read("model.so")
    return Twin(artifact, " ".join(["sm=90", *modules_of(library, {"kernels_0.cu": text}, "checked")]))


@needs_double
@pytest.mark.parametrize("bug", [None, *BUGS], ids=lambda bug: bug.name if bug else "none")
def test_every_mistake_is_seen(folder: Path, bug: Bug | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "compile_units", unread_images)
    artifact, text = persistent_source(folder)
    if bug is None:
        assert_right(
            checked(artifact, text).run(
                INPUTS, ORDERS[1], script="for _ in range(3): outputs.update(model.run(inputs))"
            )
        )
        return
    assert text.count(bug.before) == 1, bug
    twin, seen = checked(artifact, text.replace(bug.before, bug.after)), set[str]()
    for mode in (*ORDERS, MODES[0]):
        outcome = twin.run(INPUTS, mode, script="for _ in range(3): model.run(inputs)")
        seen.add(outcome.fault.partition(":")[0])
        if seen & {*bug.signs}:
            return
    raise AssertionError(f"{bug.name}: {seen}")


# ---- What is refused, and what is emitted ----------------------------------------------------------------------------


def lowered() -> Iterator[CudaLowered]:
    plan = plan_of(KERNELS, H200)
    yield from emit.lower_cuda_calls(KERNELS, plan, H200)


def test_a_kernel_that_blocks_cannot_carry_out_is_refused_by_name() -> None:
    one = next(lowered())
    assert refusal(one) == ""
    changes: list[tuple[dict[str, Any], str]] = [
        ({"cluster": 2}, "clusters"),
        ({"tiles": ()}, "tile function"),
        ({"block": 48}, "warps"),
        ({"text": "tw_mbarrier_init(landed, 1);"}, "bulk copies"),
        ({"text": '#include "tw_topk.h"\n'}, "tw_topk.h meet with all threads"),
    ]
    for change, reason in changes:
        assert reason in refusal(replace(one, **change))
    with pytest.raises(VerifyError, match=rf"call 0 \({one.name}\): its blocks work in clusters"):
        persistent([Launch((0,), ())], [replace(one, cluster=2)], {0: ()}, 1, H200)


def test_a_launch_that_waits_for_a_later_one_is_refused() -> None:
    one = next(lowered())
    with pytest.raises(VerifyError, match="launch 0 waits for one that comes later"):
        persistent([Launch((0,), (1,)), Launch((0,), ())], [one], {0: ()}, 1, H200)


def test_blocks_have_the_threads_and_the_memory_of_the_largest_task() -> None:
    one = next(lowered())
    shape = Shape.of([one, replace(one, block=256, shared_bytes=1000)])
    assert (shape.threads, shape.shared_bytes) == (256, 1008 + BLOCK_BYTES)
    operands = (Operand("SPACE_ARENA", 0, 0),) * len(one.tiles[0].parameters)
    kernel = persistent([Launch((0,), ())], [one], {0: operands}, 2, H200).kernel
    assert (kernel.grid, kernel.block) == (2 * H200.multiprocessors, one.block)


def test_long_tables_lie_in_global_memory() -> None:
    one = replace(next(lowered()), grid=1)
    operands = (Operand("SPACE_ARENA", 0, 0),) * len(one.tiles[0].parameters)

    def text(count: int) -> str:
        nodes = [Launch((call,), (call - 1,) if call else ()) for call in range(count)]
        return persistent(nodes, [one] * count, dict.fromkeys(range(count), operands), 1, H200).kernel.text

    assert "__constant__ const tw_call tw_calls[]" in text(20)
    assert "__device__ const tw_call tw_calls[]" in text(2000)
    assert "__constant__" not in text(2000)


@pytest.mark.parametrize("which", WHOLE)
def test_the_kernel_keeps_its_values_in_registers(folder: Path, which: tuple[str, str, str]) -> None:
    whole, target = network(folder, *which, "persistent"), which[1]
    made: list[nvrtc.Compiled] = []
    compile_cuda = nvrtc.compile_cuda

    def observed(*given: str) -> nvrtc.Compiled:
        made.append(compile_cuda(*given))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_cuda", observed)
        artifact_of(whole.kernels, persistent_plan(whole), folder / f"{resolve(target).architecture}.tw", target)
    (needed,) = (one.kernels["persistent"] for one in made if one.kernels)
    assert not needed.spills
    assert needed.stack_bytes == 0
    assert [one.architecture for one in made] == [resolve(target).architecture]
