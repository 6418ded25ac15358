"""Batches in slices, from model to artifact: the same results, what was decided is told, and faults are named."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.codegen import scalars as c_scalar
from compiler.contract import CompileOptions, CompileReport, DimRange
from compiler.devices.cpu.algorithms.region import RegionLowering, spread
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.device import CpuBackend, cpu_backend
from compiler.devices.cpu.target import this_machine
from compiler.errors import Disagreement
from compiler.fuse import fuse
from compiler.fuse.batches.batch import Batch, batch_of
from compiler.fuse.batches.sliced import runs_once, sliced
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.pack.loader import Model
from compiler.reproduce import reproduce
from compiler.schedule import schedule
from compiler.steps.costs.lanes import lane_costs
from compiler.steps.tiling import slices
from compiler.steps.tiling.regions import REGION
from tests.compiler.fuse.batches.test_batch import attention, rows_and_heads
from tests.compiler.fuse.batches.test_batch import opened as with_open_batch
from tests.compiler.networks import Network
from tests.compiling import compile_file

SIZE = 6


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch that may be cut is cut into single samples, whatever that gains."""
    monkeypatch.setattr(slices, "LEAST_GAIN", -math.inf)
    monkeypatch.setattr(slices, "EQUAL", math.inf)


def images(net: Network) -> str:
    """Convolutions of which one result is joined to another in place, a pool, and a row of numbers for each sample."""
    x = net.node("Conv", [net.input(SIZE, 3, 9, 9), net.weight(16, 3, 3, 3)], (SIZE, 16, 9, 9), pads=[1] * 4)
    x = net.node("Relu", [x], (SIZE, 16, 9, 9))
    parts = [net.node("Conv", [x, net.weight(8, 16, k, k)], (SIZE, 8, 9, 9), pads=[k // 2] * 4) for k in (1, 3)]
    joined = net.node("Concat", [net.node("Elu", [one], (SIZE, 8, 9, 9), alpha=0.7182) for one in parts],
                      (SIZE, 16, 9, 9), axis=1)  # fmt: skip
    mean = net.node("GlobalAveragePool", [joined], (SIZE, 16, 1, 1))
    flat = net.node("Flatten", [mean], (SIZE, 16))
    return net.node("MatMul", [flat, net.weight(16, 10)], (SIZE, 10))


def texts(net: Network) -> str:
    """Rows of a table of embeddings would be read at numbers; here they are given."""
    return net.node("MatMul", [attention(net, net.input(SIZE, 7, 12)), net.weight(12, 5)], (SIZE, 7, 5))


def compiled(folder: Path, build: Any, name: str = "model.tw", **options: Any) -> tuple[Path, CompileReport]:
    net = Network()
    model = net.model([build(net)])
    onnx.save(model, folder / "model.onnx")
    artifact = folder / name
    given = CompileOptions(**{"threads": 1, "tuning_budget_s": 0, **options})
    return artifact, compile_file(folder / "model.onnx", artifact, given)


def plan_of(artifact: Path) -> Any:
    with zipfile.ZipFile(artifact) as archive:
        return json.loads(archive.read("plan.json"))


def plan_of_range(artifact: Path) -> Any:
    """Of the program for all sizes, which lies beside that for the usual one."""
    with zipfile.ZipFile(artifact) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/plan.json"))
        return json.loads(archive.read(name))


def explained(artifact: Path) -> str:
    with zipfile.ZipFile(artifact) as archive:
        return archive.read("report.html").decode()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("build", [images, texts], ids=lambda one: one.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_in_slices_gives_what_the_whole_does(build: Any, threads: int, tmp_path: Path) -> None:
    """The artifact was proved when it was made; each sample's result depends on nothing but its place."""
    artifact, report = compiled(tmp_path, build, threads=threads)
    (call,) = plan_of(artifact)["calls"]
    assert (call["region"]["kind"], call["region"]["most"]) == ("slices", SIZE)
    assert report.kernels == len(call["region"]["bodies"][0]) > 1
    assert report.errors[0].max_relative < 1e-5
    with Model(artifact) as model:
        (given,) = model.random_inputs(5).values()
        (whole,) = model.run_flat([given])
        order = np.random.default_rng(1).permutation(SIZE)
        (turned,) = model.run_flat([given[order]])
        (apart,) = model.run_flat([np.concatenate([given[:1], np.zeros_like(given[1:])])])
    np.testing.assert_array_equal(turned, whole[order])
    np.testing.assert_array_equal(apart[0], whole[0])


@pytest.mark.usefixtures("always")
def test_lanes_take_slices_of_their_own(tmp_path: Path) -> None:
    """Each runs half of them, and waits for none of the other's."""

    def large(net: Network) -> str:
        x = net.input(SIZE, 32, 40, 40)
        for _ in range(2):
            x = net.node("Conv", [x, net.weight(32, 32, 3, 3)], (SIZE, 32, 40, 40), pads=[1] * 4)
        return x

    artifact, _ = compiled(tmp_path, large, threads=2, scheduler="aligned")
    plan = plan_of(artifact)
    tasks = {(task["lane"], task["first"], task["last"], len(task["waits"])) for task in plan["tasks"]}
    assert tasks == {(0, 0, SIZE // 2, 0), (1, SIZE // 2, SIZE, 0)}


@pytest.mark.usefixtures("always")
def test_a_sliced_batch_needs_memory_for_one_slice(tmp_path: Path) -> None:
    sliced, _ = compiled(tmp_path, images)
    whole, _ = compiled(tmp_path, images, "whole.tw", without=("slices",))
    assert len(plan_of(whole)["calls"]) > 1
    assert plan_of(sliced)["arena_bytes"] == 0 < plan_of(whole)["arena_bytes"]
    with Model(sliced) as one, Model(whole) as other:
        (given,) = one.random_inputs(2).values()
        np.testing.assert_allclose(one.run_flat([given])[0], other.run_flat([given])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("always")
def test_what_was_decided_is_told(tmp_path: Path) -> None:
    artifact, _ = compiled(tmp_path, images)
    said = explained(artifact)
    assert f"{SIZE} samples in {SIZE} slices, one after another through all kernels" in said
    assert f"each of {SIZE} slices" in said


def test_a_batch_that_gains_nothing_stays_whole_and_says_so(tmp_path: Path) -> None:
    artifact, _ = compiled(tmp_path, images)
    assert "region" not in plan_of(artifact)["calls"][0]
    assert "it saves less than the model errs by" in explained(artifact)


@pytest.mark.parametrize(("per_byte", "samples"), [(0.0, SIZE), (1e-6, 1)])
def test_what_moving_values_costs_decides(
    per_byte: float, samples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it costs as much as the memory that is worked on, a sample at a time moves the least."""

    def moving_seconds(backend: CpuBackend, moved_bytes: int, working_bytes: int, lanes: int) -> float:
        return per_byte * working_bytes * moved_bytes

    monkeypatch.setattr(CpuBackend, "moving_seconds", moving_seconds)
    artifact, _ = compiled(tmp_path, images)
    regions = [call["region"]["most"] for call in plan_of(artifact)["calls"] if "region" in call]
    assert regions == ([] if samples == SIZE else [SIZE // samples])


def test_values_within_a_cores_own_cache_are_not_moved() -> None:
    backend = cpu_backend(CompileOptions(target="cpu:x86-64-v3"), {})
    own, shared = backend.target.l2_bytes, backend.target.l3_bytes
    assert backend.moving_seconds(1 << 20, own // 2, 2) == 0
    near, far = (backend.moving_seconds(1 << 20, size, 1) for size in (own, shared))
    assert 0 < near < far
    assert backend.moving_seconds(1 << 20, shared // 2, 1) < backend.moving_seconds(1 << 20, shared // 2, 2)


@pytest.mark.usefixtures("always")
def test_samples_that_depend_on_each_other_stay_whole_and_the_reason_is_told(tmp_path: Path) -> None:
    def mixed(net: Network) -> str:
        return net.node("Softmax", [images(net)], (SIZE, 10), axis=0)

    artifact, _ = compiled(tmp_path, mixed)
    assert all("region" not in call for call in plan_of(artifact)["calls"])
    assert "samples are not computed each by itself: Softmax" in explained(artifact)


@pytest.mark.usefixtures("always")
def test_a_measured_artifact_of_slices_is_made_again_to_the_byte(tmp_path: Path) -> None:
    artifact, report = compiled(tmp_path, images, tuning_budget_s=600, tuning_trials=6)
    assert report.records_measured
    found = reproduce(artifact, tmp_path / "model.onnx", tmp_path / "again.tw")
    assert found.is_same, str(found)


@pytest.mark.usefixtures("always")
def test_a_wrong_kernel_inside_is_found_and_the_node_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(
        c_scalar.C,
        literal=lambda value, dtype: c_scalar.literal(0.9 if abs(float(value) - 0.7182) < 1e-6 else value, dtype),
    )
    monkeypatch.setattr("compiler.codegen.expressions.Emitter.dialect", wrong)
    with pytest.raises(Disagreement) as caught:
        compiled(tmp_path, images)
    assert "Elu" in str(caught.value.details["sources"])
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.usefixtures("always")
def test_slices_at_wrong_places_are_blamed_on_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RegionLowering.lower

    def wrong(self: RegionLowering) -> Lowered:
        lowered = right(self)
        assert "+ slice *" in lowered.text
        return replace(lowered, text=lowered.text.replace("+ slice *", f"+ (slice + 1) % {SIZE} *"))

    monkeypatch.setattr(RegionLowering, "lower", wrong)
    artifact, _ = compiled(tmp_path, images)  # inputs and outputs move together, and nothing is wrong
    assert artifact.exists()

    def half_wrong(self: RegionLowering) -> Lowered:
        lowered = right(self)
        return replace(lowered, text=lowered.text.replace("+ slice *", "+ 0 * slice *", 1))

    monkeypatch.setattr(RegionLowering, "lower", half_wrong)
    with pytest.raises(Disagreement) as caught:
        compiled(tmp_path, images, "other.tw")
    assert caught.value.details["plan"] is True


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("precision", ["bf16", "auto"])
def test_short_elements_go_through_slices_too(precision: str, tmp_path: Path) -> None:
    if precision == "bf16" and not this_machine().multiplies_bf16:
        pytest.skip("this machine multiplies no bf16")
    artifact, _ = compiled(tmp_path, images, precision=precision, target="cpu", tolerance=0.05)
    (call,) = plan_of(artifact)["calls"]
    assert call["region"]["kind"] == "slices"


def opened(folder: Path, build: Any, sizes: DimRange, threads: int = 1, **options: Any) -> tuple[Path, CompileReport]:
    net = Network()
    model = net.model([build(net)])
    for one in (*model.graph.input, *model.graph.output):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, folder / "open.onnx")
    given = CompileOptions(threads=threads, tuning_budget_s=0, dims={"batch": sizes}, **options)
    return folder / "open.tw", compile_file(folder / "open.onnx", folder / "open.tw", given)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("least", "threads"), [(1, 1), (2, 2)])
def test_a_batch_of_any_size_runs_as_many_samples_as_there_are(least: int, threads: int, tmp_path: Path) -> None:
    """No sample depends on how many there are; every size was also proved against the model at that size."""
    artifact, _ = opened(tmp_path, images, DimRange(least, least, SIZE), threads)
    (call,) = (one for one in plan_of_range(artifact)["calls"] if "region" in one)
    assert (call["region"]["kind"], call["region"]["most"]) == ("slices", SIZE)
    given = np.random.default_rng(6).standard_normal((SIZE, 3, 9, 9)).astype(np.float32)
    with Model(artifact) as model:
        (whole,) = model.run_flat([given])
        for size in range(least, SIZE):
            (part,) = model.run_flat([given[:size]])
            assert part.shape == (size, 10)
            if size != least:  # for which there is a program of its own
                np.testing.assert_array_equal(part, whole[:size])


def test_no_more_slices_run_than_there_are_samples() -> None:
    """What belongs to others is not written."""
    loaded = with_open_batch(rows_and_heads, SIZE, 5, 6, sizes=DimRange(1, 2, SIZE))
    kernels = fuse(loaded.graph).kernels
    batch = batch_of(kernels, kernels.inputs[1])
    assert isinstance(batch, Batch)
    backend, one = cpu_backend(CompileOptions(target="cpu"), {}), batch.of(1)
    inner = [call for call in one.calls if not runs_once(batch, call)]
    best = [
        min(backend.legal_tiles(backend.workload_of(one, call), 1, "fp32"), key=attrgetter("seconds")) for call in inner
    ]
    outer, _ = sliced(batch, one, SIZE, [each.tile for each in best], [Cost(each.seconds, "model") for each in best])
    menus = [Menu("", (Variant(Tile("loops"), 1, 1, Cost(1.0, "model")),)) for _ in outer.calls[1:]]
    menus.append(Menu("", (Variant(REGION, SIZE, 1, Cost(1.0, "model")),)))
    plan, region = schedule(outer, menus, 1, lane_costs(None), "sequential")[0].plan, outer.calls[-1]
    given = {kernels.inputs[0]: np.ones((SIZE, 5, 6), np.float32), kernels.inputs[1]: np.array([2])}
    operands = [(given | dict(outer.constants))[id].reshape(-1) for id in region.inputs]
    result = np.full(outer.buffers[region.outputs[0]].type.elements, 7, np.float32)
    with backend.stepper(outer, plan) as stepper:
        stepper.run(len(outer.calls) - 1, [*operands, result])
    rows = result.reshape(SIZE, -1)
    assert (rows[:2] != 7).all()
    assert (rows[2:] == 7).all()


@pytest.mark.usefixtures("always")
def test_an_open_batch_with_fewer_samples_than_lanes_stays_whole(tmp_path: Path) -> None:
    artifact, report = opened(tmp_path, images, DimRange(1, 2, SIZE), 2)
    assert all("region" not in call for call in plan_of_range(artifact)["calls"])
    (said,) = (notice for notice in report.notices if "sample by sample" in notice)
    assert 'give dims [1, {"min": 2, "max": 6}]' in said


@pytest.mark.parametrize("count", [1, 2, 6, 16])
def test_slices_are_spread_so_that_each_stretch_has_as_many_of_the_first(count: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    for lanes in (lanes for lanes in (1, 2, 4) if count % (2 * lanes) == 0):
        part = count // lanes
        shares = [sum(one < count // 2 for one in order[part * lane : part * (lane + 1)]) for lane in range(lanes)]
        assert max(shares) - min(shares) <= 1
