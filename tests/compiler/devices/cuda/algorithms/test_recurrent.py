"""Recurrent layers by clusters of every size, run on the double and compared with the float64 reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.recurrent.chains import as_chains
from compiler.devices.cuda.algorithms.recurrent.tiles import CLUSTERS, SEQUENCES, cuda_recurrent_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.tensor import DType
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_recurrent import GATES, Layer, case_of, layers
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda.on_double import Subject, needs_double, run, stored_as
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels

H200, A100 = resolve("cuda:sm_90"), resolve("cuda:sm_80")
Wanted = tuple[np.ndarray, ...]


def tile_of(blocks: int, sequences: int) -> Tile:
    return Tile("recurrent", (Level("cluster", (("units", blocks),)), Level("block", (("sequences", sequences),))))


def layer(
    op: str, steps: int, batch: int, features: int, hidden: int, direction: str = "forward"
) -> tuple[Case, Wanted]:
    """A plain layer with biases."""
    rng = np.random.default_rng(11)
    count, rows = 2 if direction == "bidirectional" else 1, GATES[op] * hidden
    shapes = ((steps, batch, features), (count, rows, features), (count, rows, hidden), (count, 2 * rows))
    arrays = tuple((rng.normal(size=shape) * 0.4).astype(np.float32) for shape in shapes)
    attrs = {"direction": direction, "hidden_size": hidden}
    return case_of(Layer(op, arrays, attrs, 2))


def chained() -> list[tuple[Case, Wanted]]:
    """Layers in all their forms, as far as they are chains of hidden units."""
    found = [case_of(one) for one in draws(layers(), 90)]
    return [(case, wanted) for case, wanted in found if as_chains(case.workload)]


def subjects(cases: Sequence[Case]) -> list[Subject]:
    """Each case by the next size of cluster and number of sequences."""
    found = []
    for number, case in enumerate(cases):
        tile = tile_of(CLUSTERS[number % len(CLUSTERS)], SEQUENCES[number // 2 % len(SEQUENCES)])
        found.append(Subject(case, lower_cuda(f"k{number}_layer", case.workload, tile, H200)))
    return found


def check(
    found: Sequence[tuple[Case, Wanted]],
    flavour: str = "plain",
    modes: Sequence[Mode] = MODES[6:7],
    tolerance: float = 2e-5,
) -> None:
    all = subjects([case for case, _ in found])
    module = compile_kernels(PREAMBLE + "\n".join(subject.lowered.text for subject in all), flavour)
    for mode in modes:
        with Device(module, mode) as device:
            for subject, (_, wanted) in zip(all, found, strict=True):
                for got, want in zip(run(device, subject), wanted, strict=False):
                    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=str(subject))


@needs_double
def test_recurrent_layers_of_every_form_mean_what_the_reference_says() -> None:
    found = chained()
    assert {case.kernel.family for case, _ in found} == set(GATES)
    assert any(len(as_chains(case.workload) or ()) == 2 for case, _ in found)
    check(found)


@needs_double
def test_weights_in_16_bits_are_multiplied_in_fp32() -> None:
    found = []
    for op in GATES:
        case, wanted = layer(op, 4, 2, 9, 24)
        buffers = [stored_as(buffer, DType.F16) if at in (1, 2) else buffer for at, buffer in enumerate(case.buffers)]
        found.append((replace(case, buffers=tuple(buffers)), wanted))
    packings = [one for subject in subjects([case for case, _ in found]) for one in subject.lowered.packings.values()]
    assert {packing.dtype for packing in packings} == {DType.F16}
    check(found, tolerance=3e-3)


@needs_double
def test_weights_that_do_not_fit_are_read_at_every_step() -> None:
    small = replace(H200, block_shared_bytes=48 * 1024)
    case, wanted = layer("LSTM", 3, 1, 8, 96)
    lowered = lower_cuda("layer", case.workload, tile_of(2, 1), small)
    assert "kept_" in lowered.text
    assert "for (; k < 96; k += " in lowered.text
    assert lowered.shared_bytes <= 48 * 1024
    subject = Subject(case, lowered)
    with Device(compile_kernels(PREAMBLE + lowered.text, "plain"), MODES[2]) as device:
        for got, want in zip(run(device, subject), wanted, strict=False):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@needs_double
def test_blocks_and_threads_do_not_race() -> None:
    found = [layer(op, 3, 2, 5, 12, direction) for op in GATES for direction in ("forward", "bidirectional")]
    check(found, "checked", MODES[4:5])


@needs_double
def test_a_missing_barrier_of_the_cluster_is_found() -> None:
    case, _ = layer("LSTM", 4, 1, 5, 16)
    lowered = lower_cuda("layer", case.workload, tile_of(2, 1), H200)
    head, loop = lowered.text.split("for (int T = 0")
    broken = (
        head
        + "for (int T = 0"
        + loop.replace("tw_cluster_arrive();", "", 1).replace("tw_cluster_wait();", "__syncthreads();", 1)
    )
    with Device(compile_kernels(PREAMBLE + broken, "checked"), MODES[6]) as device, pytest.raises(Fault):
        run(device, Subject(case, lowered))


def test_a_long_layer_is_dealt_out_to_a_cluster_and_directions_to_two() -> None:
    case, _ = layer("LSTM", 32, 1, 256, 256, "bidirectional")
    best = cuda_recurrent_tiles(case.workload, H200, "fp32")[0]
    assert best.tile == tile_of(8, 1)
    assert lower_cuda("layer", case.workload, best.tile, H200).grid == 16
    assert {
        proposal.tile.extent("cluster", "units") for proposal in cuda_recurrent_tiles(case.workload, A100, "fp32")
    } == {1}


def test_a_layer_whose_weights_are_no_constants_is_left_to_other_lowerings() -> None:
    case, _ = layer("GRU", 3, 1, 5, 12)
    assert as_chains(case.workload)
    assert as_chains(replace(case, constant=()).workload) is None


@needs_nvrtc
@pytest.mark.parametrize(("architecture", "blocks"), [("sm_80", 1), ("sm_86", 1), ("sm_90a", 1), ("sm_90a", 8)])
def test_nvrtc_compiles_them_without_spills(architecture: str, blocks: int) -> None:
    target = next(target for target in (A100, resolve("cuda:sm_86"), H200) if target.architecture == architecture)
    found = [layer("LSTM", 10, 4, 64, 256), layer("GRU", 10, 2, 100, 128, "bidirectional"), layer("RNN", 5, 1, 9, 40)]
    lowered = [
        lower_cuda(f"k{at}_{sequences}", case.workload, tile_of(blocks, sequences), target)
        for at, (case, _) in enumerate(found)
        for sequences in SEQUENCES
    ]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(one.text for one in lowered), architecture, "recurrent.cu")
    assert compiled.kernels.keys() == {one.name for one in lowered}
    assert all(one.shared_bytes <= target.block_shared_bytes for one in lowered)
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
    assert max(resources.registers for resources in compiled.kernels.values()) <= 128
