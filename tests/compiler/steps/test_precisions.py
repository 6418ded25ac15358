"""`precision` auto: each kernel in fp32 or 16 bits, as fast as the model of costs has it within a budget of error."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.measure.rates import DOT
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import resolve, this_machine
from compiler.devices.cuda import nvrtc
from compiler.errors import OptionsError
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.knowledge.making import machine_record
from compiler.measure.spread import Spread
from compiler.request import Host
from compiler.session import Session
from compiler.steps.precisions import NO_FASTER, NOTHING, Precisions, chosen_precisions, nodes_of
from tests.compiler.networks import Network
from tests.compiler.rewrite.sketch import Sketch
from tests.compiling import compile_file

BF16_TARGET = "cpu:x86-64-v4-bf16"
GPU_TARGET = "cuda:sm_90"
needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
needs_bf16 = pytest.mark.skipif(not this_machine().multiplies_bf16, reason="this machine does not multiply bf16")


def session(target: str = BF16_TARGET, dots_per_fma: float | None = 1.0) -> Session:
    if target == GPU_TARGET:
        return Session.of(CompileOptions(target=target, precision="auto", tuning_budget_s=0), Host(measure=False))
    options = CompileOptions(target=target, precision="auto", threads=1, tuning_budget_s=0)
    made = Session.of(options, Host(measure=False))
    cpu = resolve(target)
    made.backend = replace(made.backend, target=replace(cpu, rates=replace(cpu.rates, dots_per_fma=dots_per_fma)))  # type: ignore[type-var]
    return made


def products(scale: float = 1.0) -> Graph:
    """Five products with Relus between; what the first one loses to rounding is magnified `scale` times."""
    s = Sketch(3, DType.F32)
    x = s.x(64, 256)
    for _ in range(5):
        x = s("Relu", s("MatMul", x, s.c(s.rng.normal(size=(256, 256)) / 16)))
    first = s.nodes[0].outputs[0]
    if scale != 1.0:
        large = s("Mul", s("Sub", first, s("Round", first)), s.c(scale))
        x = s("Add", x, large)
    return s.graph(x)


def inputs(graph: Graph, count: int = 2) -> list[dict[int, np.ndarray]]:
    random = np.random.default_rng(7)
    return [
        {id: random.normal(size=graph.type(id).dims).astype(np.float32) for id in graph.inputs} for _ in range(count)
    ]


def chosen(graph: Graph, budget: float, target: str = BF16_TARGET) -> tuple[KernelGraph, Precisions]:
    kernels = fuse(graph).kernels
    found = chosen_precisions(session(target), graph, kernels, 0.0, budget, inputs(graph))
    found.kernels.verify()
    assert len(found.layers) == len(kernels.calls)
    assert {at for at, one in enumerate(found.layers) if one.precision != "fp32"} == (
        {*range(len(kernels.calls))} - found.exact if found.precision == "auto" else set()
    )
    return kernels, found


def short(found: Precisions) -> set[int]:
    return {id for id, buffer in found.kernels.buffers.items() if buffer.element}


def test_a_wide_budget_gives_what_bf16_throughout_has_in_memory() -> None:
    kernels, found = chosen(products(), 1.0)
    every = session().backend.stored(kernels, "bf16")
    assert found.kernels == every
    assert short(found)
    assert not found.exact
    assert all(one.short_us < one.fp32_us for one in found.layers)
    assert "5 of 5 kernels in bf16" in found.summary


def test_without_a_budget_or_without_bf16_on_the_target_all_is_as_in_fp32() -> None:
    for budget, target in ((1e-9, BF16_TARGET), (1.0, "cpu:x86-64-v3")):
        kernels, found = chosen(products(), budget, target)
        assert (found.kernels, found.precision, found.exact) == (kernels, "fp32", frozenset())
        assert "all kernels stay in fp32" in found.summary
    assert {one.reason for one in found.layers} == {NOTHING}


def test_a_kernel_whose_rounding_is_magnified_stays_in_fp32_and_the_others_do_not() -> None:
    _, plain = chosen(products(), 8e-3)
    assert all(one.precision == "bf16" for one in plain.layers)
    _, found = chosen(products(40.0), 8e-3)
    assert found.layers[0].precision == "fp32"
    assert [one.precision for one in found.layers].count("bf16") >= 2
    assert found.layers[0].error is not None
    assert found.layers[0].error > 8e-3
    assert "does not fit" in found.layers[0].reason
    written = {id for at in found.exact for id in found.kernels.calls[at].outputs}
    assert written.isdisjoint(short(found))


@needs_nvrtc
def test_on_a_gpu_activations_and_weights_of_the_chosen_kernels_alone_are_stored_in_fp16() -> None:
    kernels, every = chosen(products(), 1.0, GPU_TARGET)
    assert every.kernels == session(GPU_TARGET).backend.stored(kernels, "fp16")
    assert {one.precision for one in every.layers} == {"fp16"}
    _, found = chosen(products(40.0), 1e-3, GPU_TARGET)
    assert [one.precision for one in found.layers] == ["fp32", *["fp16"] * 4]
    kept = found.exact
    exact = {id for at in kept for id in (*found.kernels.calls[at].outputs, *found.kernels.calls[at].inputs)}
    written = {id for at in kept for id in found.kernels.calls[at].outputs}
    weights = exact & {*found.kernels.constants}
    assert (written | weights).isdisjoint(short(found))
    others = [call for at, call in enumerate(found.kernels.calls) if at not in kept]
    assert {id for call in others for id in call.inputs if id in found.kernels.constants} - weights <= short(found)
    assert {found.kernels.buffers[id].element for id in short(found)} == {DType.F16}


@needs_nvrtc
def test_on_a_gpu_what_is_lost_by_weights_that_are_only_added_counts() -> None:
    s = Sketch(4, DType.F32)
    graph = s.graph(s("Add", s.x(1024, 4096), s.c(s.rng.normal(size=(1024, 4096)))))
    _, found = chosen(graph, 1.0, GPU_TARGET)
    assert [one.precision for one in found.layers] == ["fp16"]
    assert short(found) == {*found.kernels.constants}
    _, kept = chosen(graph, 1e-6, GPU_TARGET)
    assert [one.precision for one in kept.layers] == ["fp32"]
    assert kept.layers[0].error is not None
    assert 1e-5 < kept.layers[0].error < 1e-3


def test_more_budget_never_takes_longer_and_no_choice_takes_longer_than_fp32() -> None:
    def ms(found: Precisions) -> tuple[float, float]:
        mine, plain = found.summary.split(" ms on one lane instead of ")
        return float(mine.rsplit(" ", 1)[1]), float(plain.split(" ", 1)[0])

    each = [chosen(products(40.0), budget)[1] for budget in (1e-4, 1e-3, 2e-3, 4e-3, 8e-3)]
    mixed = [ms(one) for one in each if one.precision == "auto"]
    assert len(mixed) >= 3
    assert all(mine < plain for mine, plain in mixed)
    assert mixed == sorted(mixed, reverse=True)


def test_dot_products_that_are_half_as_fast_as_multiply_adds_or_were_never_measured_gain_nothing() -> None:
    graph = products()
    kernels = fuse(graph).kernels
    for dots in (0.5, None):
        found = chosen_precisions(session(dots_per_fma=dots), graph, kernels, 0.0, 1.0, inputs(graph))
        assert found.precision == "fp32"
        assert {one.reason for one in found.layers} == {NO_FASTER}


def test_the_nodes_of_a_call_lie_between_what_it_reads_and_what_it_writes() -> None:
    graph = products()
    kernels = fuse(graph).kernels
    found = nodes_of(graph, kernels)
    assert [sorted(graph.nodes[at].op for at in each) for each in found] == [["MatMul", "Relu"]] * 5
    assert sorted(at for each in found for at in each) == [*range(len(graph.nodes))]


def convolutions(path: Path) -> Path:
    net = Network()
    x = net.input(1, 3, 24, 24)
    for filters in (32, 32, 32):
        shape = (1, filters, 24, 24)
        w = net.weight(filters, net.shapes[x][1], 3, 3)
        x = net.node("Relu", [net.node("Conv", [x, w, net.weight(filters)], shape, pads=[1] * 4)], shape)
    onnx.save(net.model([x]), path)
    return path


def rates() -> list[dict[str, Any]]:
    """As if this machine had been measured, and made as many dot products of bf16 as multiply-adds."""
    target = resolve("cpu")
    names = {one.name: getattr(target.rates, one.name) for one in fields(Rates) if one.name.endswith("_per_ns")}
    names[DOT] = target.rates.fma_per_ns
    return [machine_record(name, "", target, Spread.of([1e-9 / rate]), 1).to_json() for name, rate in names.items()]


def compiled(path: Path, **options: object) -> tuple[CompileReport, Callable[[str], bytes]]:
    wanted = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, **options})
    report = compile_file(convolutions(path / "m.onnx"), path / "m.tw", wanted, rates())

    def read(ending: str) -> bytes:
        with zipfile.ZipFile(path / "m.tw") as archive:
            return b"".join(archive.read(name) for name in sorted(archive.namelist()) if name.endswith(ending))

    return report, read


@needs_bf16
def test_an_artifact_keeps_the_budget_and_its_report_says_what_each_kernel_got_and_why(tmp_path: Path) -> None:
    report, read = compiled(tmp_path, precision="auto")
    algorithms = [str(call["tile"]).split()[0] for call in json.loads(read("plan.json"))["calls"]]
    assert report.tolerance == 2e-2
    assert 1e-5 < max(one.max_relative for one in report.errors) <= 2e-2
    assert "bf16" in [one.precision for one in report.precisions]
    assert [name for name in algorithms if "bf16" in name], algorithms
    assert [one for one in report.notices if one.startswith("precision auto: ")]
    assert b"Kernels by precision" in read("report.html")
    for at, one in enumerate(report.precisions):
        assert one.reason
        assert one.precision == "bf16" or "bf16" not in algorithms[at]


@needs_bf16
def test_a_tolerance_below_what_bf16_can_keep_gives_the_sources_of_fp32(tmp_path: Path) -> None:
    (tmp_path / "auto").mkdir()
    (tmp_path / "fp32").mkdir()
    report, auto = compiled(tmp_path / "auto", precision="auto", tolerance=1e-5)
    other, plain = compiled(tmp_path / "fp32", precision="fp32", tolerance=1e-5)
    assert auto(".c") == plain(".c") != b""
    assert {one.precision for one in report.precisions} == {"fp32"}
    assert other.precisions == ()


def test_several_devices_are_refused() -> None:
    with pytest.raises(OptionsError, match="precision auto is for one device"):
        CompileOptions(precision="auto", devices=("cpu:0", "cpu:1"))
