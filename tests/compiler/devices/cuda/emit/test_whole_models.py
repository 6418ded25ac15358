"""Whole models for CUDA targets, compiled by the pipeline and run on the double beside the float64 reference.

They run through the artifact's C interface.
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import resolve
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.prove.agree import agree
from tests.compiler.devices.cuda.artifact_on_double import Twin, on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.compiling import compile_file
from tests.cuda_double.double import MODES, Mode

pytestmark = needs_nvrtc
MODELS: Mapping[str, Mapping[str, int]] = {
    "squeezenet1_0": {"size": 48},
    "tiny_inception": {},
    "tiny_transformer": {},
    "tiny_lstm": {},
    "tiny_mobile": {},
}
"""Networks of the zoo and their sizes: fire modules, branches that are concatenated, attention, recurrence, depthwise
convolutions.
"""
HOPPER = "cuda:sm_90"
PRECISIONS = ("fp32", "fp16")
TOLERANCE = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""Largest error relative to an output's largest value: what jobs without a tolerance of their own are granted."""
RANDOM_ORDERS = (Mode("random", "late", seed=5, resident=4), Mode("random", "random", seed=6, resident=3))
"""Of launches, threads and landing copies; a programmatic edge lets a kernel start before the one it depends on."""


@dataclass(frozen=True)
class Made:
    """A model, its options, the artifact that the pipeline made, and what NVRTC said of each image in it."""

    model: Path
    artifact: Path
    options: CompileOptions
    images: tuple[nvrtc.Compiled, ...] = field(repr=False)

    @property
    def graph(self) -> Graph:
        return load(self.model, self.options, OPERATORS).graph

    @property
    def algorithms(self) -> set[str]:
        """Of the tiles that the plan chose."""
        with zipfile.ZipFile(self.artifact) as archive:
            plan = json.loads(archive.read("plan.json"))
        return {call["blocking"]["algorithm"] for call in plan["calls"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole_models")


@lru_cache(maxsize=64)
def made(folder: Path, name: str, precision: str, target: str) -> Made:
    """A model compiled for a target that is not here: nothing is measured, so that the model of costs decides."""
    model = folder / f"{name}.onnx"
    if not model.exists():
        model.write_bytes(build(name, **MODELS[name]).SerializeToString())
    options = CompileOptions(target=target, precision=precision, tuning_budget_s=0.0)
    artifact = folder / f"{name}-{precision}-{target.partition(':')[2]}.tw"
    images: list[nvrtc.Compiled] = []
    compile_cuda = nvrtc.compile_cuda

    def observed(*arguments: str) -> nvrtc.Compiled:
        images.append(compile_cuda(*arguments))
        return images[-1]

    with pytest.MonkeyPatch.context() as patch:
        # No GPU is here, whatever this machine has and whatever double another test left loaded.
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
        patch.setattr(nvrtc, "compile_cuda", observed)
        compile_file(model, artifact, options, measure=False)
    return Made(model, artifact, options, tuple(images))


def outputs_of(twin: Twin, graph: Graph, inputs: Sequence[np.ndarray], mode: Mode) -> list[np.ndarray]:
    """The model's outputs in the graph's order.

    Fails where the double found something wrong, or something stayed alive.
    """
    names = {id: graph.values[id].name or f"%{id}" for id in (*graph.inputs, *graph.outputs)}
    given = {names[id]: array for id, array in zip(graph.inputs, inputs, strict=True)}
    outcome = twin.run(given, mode)
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {}), outcome
    return [outcome.outputs[names[id]] for id in graph.outputs]


def check(made: Made, flavour: str, modes: Sequence[Mode]) -> list[list[np.ndarray]]:
    """Compares a model with its reference in every mode; the outputs on random inputs, by mode."""
    twin, graph, results = on_double(made.artifact, flavour), made.graph, []
    for mode in modes:

        def run(inputs: Sequence[np.ndarray], mode: Mode = mode) -> list[np.ndarray]:
            results.append(outputs_of(twin, graph, inputs, mode))
            return results[-1]

        verdict = agree(run, graph, OPERATORS, TOLERANCE[made.options.precision], 0, budget_s=0.0)
        assert verdict.passed, f"{made.artifact.name} in {mode}: {verdict}"
        assert verdict.cases == ("random",)
    return results


@needs_double
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_agrees_with_its_reference_in_every_order_to_the_last_bit(
    folder: Path, name: str, precision: str
) -> None:
    first, *others = check(made(folder, name, precision, HOPPER), "plain", (RANDOM_ORDERS[0], MODES[2]))
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)


@needs_double
@pytest.mark.parametrize(
    ("name", "precision"),
    [("tiny_transformer", "fp16"), ("tiny_inception", "fp16"), ("tiny_lstm", "fp32"), ("tiny_mobile", "fp16")],
)
def test_no_access_of_a_model_races_or_leaves_its_memory(folder: Path, name: str, precision: str) -> None:
    check(made(folder, name, precision, HOPPER), "checked", RANDOM_ORDERS[1:])


def test_a_mobile_network_has_its_windows_and_its_squeezes_in_the_kernels_after_them(folder: Path) -> None:
    assert {"separable_tf32", "excitation"} <= made(folder, "tiny_mobile", "fp16", HOPPER).algorithms
    assert {"separable_3xtf32", "excitation"} <= made(folder, "tiny_mobile", "fp32", HOPPER).algorithms


@needs_double
def test_tf32_and_bf16_agree_within_their_tolerances(folder: Path) -> None:
    for precision in ("tf32", "bf16"):
        check(made(folder, "tiny_inception", precision, HOPPER), "plain", RANDOM_ORDERS[1:])


@pytest.mark.parametrize(
    ("target", "precision"),
    [
        (HOPPER, "fp32"),
        (HOPPER, "fp16"),
        ("cuda:sm_80", "fp16"),
        ("cuda:sm_86", "fp32"),
        ("cuda:sm_89", "fp16"),
    ],
)
def test_kernels_of_chosen_tiles_keep_their_values_in_registers(folder: Path, target: str, precision: str) -> None:
    names = list(MODELS) if target == HOPPER else ["tiny_inception", "tiny_transformer"]
    for name in names:
        cubins = [one for one in made(folder, name, precision, target).images if one.architecture.startswith("sm_")]
        assert {one.architecture for one in cubins} == {resolve(target).architecture}
        kernels = {kernel: needed for one in cubins for kernel, needed in one.kernels.items()}
        assert kernels
        assert {kernel: needed for kernel, needed in kernels.items() if needed.spills} == {}, f"{name} for {target}"
        assert [loss for one in cubins for loss in one.losses] == [], f"{name} for {target}"


@pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed (nvidia-cuda-nvdisasm)")
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", HOPPER])
@pytest.mark.parametrize("name", ["tiny_inception", "tiny_transformer"])
def test_products_of_an_fp16_model_are_computed_by_tensor_cores(
    folder: Path, name: str, target: str, tmp_path: Path
) -> None:
    whole, tool = made(folder, name, "fp16", target), disassembler()
    assert tool is not None
    assert whole.algorithms & {"mma", "wgmma"}, whole.algorithms
    images = [image for image in whole.images if image.architecture.startswith("sm_")]
    assert any(uses_tensor_cores(image, tool, tmp_path) for image in images), f"{name} for {target}"


def uses_tensor_cores(image: nvrtc.Compiled, tool: Path, folder: Path) -> bool:
    """Whether any of an image's kernels does."""
    cubin = folder / "kernels.cubin"
    cubin.write_bytes(image.image)
    text = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
    return re.search(r"\b(HMMA|HGMMA)\.\d+\S*\.F32", text) is not None
