from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from compiler.codegen.build import Toolchain
from compiler.contract import CompileOptions
from compiler.devices.cuda import candidates
from compiler.devices.cuda import device as cuda
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.device import TRIES, CudaBackend, cuda_backend
from compiler.devices.cuda.measure.machine import CudaMachine
from compiler.devices.cuda.nvrtc import Compiled, Resources
from compiler.devices.cuda.target import CudaTarget, Gpu, resolve
from compiler.devices.cuda.toolchain import CudaToolchain
from compiler.errors import ToolchainFailed
from compiler.fuse import fuse
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.machine import Setting, Trial, Workload
from compiler.ir.plans.plan import Plan
from compiler.ir.tensor import DType
from compiler.ir.tile import Cost, Level, Tile, Variant
from compiler.trace import never_stops
from tests.compiler.networks import Network, graph_of
from tests.parse import parse_kernel

GPU = Gpu("H200", (9, 0), 132, 50 << 20, 141 << 30, 1.83, "cuda:sm_90/print")
TOOLCHAIN = CudaToolchain(Toolchain("/usr/bin/cc", "cc 1"), (13, 0))
BACKEND = CudaBackend(resolve("cuda:sm_90"), TOOLCHAIN)
TILES = [Tile("loops", (Level("block", (("team", team),)),)) for team in (1, 32, 128, 256, 512)]
ROWS = "kernel Sum(in x0: f32[64, 512]; out y0: f32[64]) for i:64 y0[i] = sum<f32> j:512 . x0[i, j]"

Needs = Callable[[int], dict[str, int]]


def rows() -> Workload:
    kernel = parse_kernel(ROWS)
    return Workload(
        kernel, (Buffer.whole(0, kernel.inputs[0].type),), (Buffer.whole(0, kernel.outputs[0].type),), (False,)
    )


def dense() -> KernelGraph:
    net = Network()
    x = net.node("MatMul", [net.input(8, 64), net.weight(64, 64)], (8, 64))
    return fuse(graph_of(net.model([net.node("Softmax", [x], (8, 64), axis=1)]))).kernels


def compiler(monkeypatch: pytest.MonkeyPatch, needs: Sequence[dict[str, int] | None]) -> list[str]:
    """Stands in for NVRTC: the nth tile of TILES needs the nth of `needs`, or is refused.

    Returns the names it was asked for.
    """
    texts = {BACKEND.candidates.lowered(rows(), tile).text: need for tile, need in zip(TILES, needs, strict=False)}
    asked: list[str] = []

    def compile_cuda(source: str, architecture: str, name: str) -> Compiled:
        asked.append(name)
        ((_, need),) = ((text, need) for text, need in texts.items() if source.endswith(text))
        if need is None:
            raise ToolchainFailed(f"refused {len(asked)}")
        resources = replace(Resources(32, 0, 0, 0, 0), **need)
        return Compiled(architecture, b"image", "", {name.removesuffix(".cu"): resources}, ())

    monkeypatch.setattr(candidates, "compile_cuda", compile_cuda)
    return asked


SPILLS = {"spill_store_bytes": 8, "spill_load_bytes": 8}
SPILLS_LESS = {"spill_store_bytes": 4, "spill_load_bytes": 4}
TOO_LARGE = {"registers": 255, "static_shared_bytes": 1 << 20}


@pytest.mark.parametrize(
    ("needs", "taken", "tried"),
    [
        ([{}, {}], 0, 1),
        ([SPILLS, {}, {}], 1, 2),
        ([TOO_LARGE, None, {}], 2, 3),
        ([SPILLS, SPILLS_LESS, SPILLS], 1, 3),
        ([TOO_LARGE, SPILLS], 1, 2),
    ],
)
def test_of_the_models_favourites_the_first_that_does_not_spill_is_taken_else_the_one_that_spills_least(
    needs: list[dict[str, int] | None], taken: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = replace(BACKEND)
    asked = compiler(monkeypatch, needs)
    assert list(backend.choose([(rows(), TILES[: len(needs)])])) == [taken]
    assert len(asked) == tried
    assert list(backend.choose([(rows(), TILES[: len(needs)])] * 3)) == [taken] * 3


def test_where_nothing_can_run_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, [None, TOO_LARGE])
    with pytest.raises(ToolchainFailed, match="refused 1"):
        replace(BACKEND).choose([(rows(), TILES[:2])])
    compiler(monkeypatch, [TOO_LARGE])
    with pytest.raises(ToolchainFailed, match="no tile of this kernel fits a multiprocessor"):
        replace(BACKEND).choose([(rows(), TILES[:1])])


def test_only_so_many_tiles_of_a_kernel_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "TRIES", 2)
    asked = compiler(monkeypatch, [SPILLS, SPILLS_LESS, {}])
    assert list(replace(BACKEND).choose([(rows(), TILES[:3])])) == [1]
    assert len(asked) == 2 < TRIES


def test_trials_are_built_but_for_those_that_are_not_worth_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, [{}, SPILLS, None, {}, TOO_LARGE])
    trials = [Trial(rows(), "key", tile, 1) for tile in TILES]
    built = replace(BACKEND).build(trials)
    assert built is not None
    assert [kernel is not None for kernel in built] == [True, False, False, True, False]
    (first,) = (kernel for kernel in built[:1] if kernel)
    lowered = BACKEND.candidates.lowered(rows(), TILES[0])
    assert (first.grid, first.block, first.name) == (lowered.grid, lowered.block, lowered.name)
    assert first.operands == ((DType.F32, 64 * 512), (DType.F32, 64))


def test_a_build_of_trials_is_called_off_when_someone_is_after_a_stop_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = compiler(monkeypatch, [{}])
    assert replace(BACKEND).build([Trial(rows(), "key", TILES[0], 1)], stop_requested=lambda: True) is None
    assert not asked


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", DType.F32), ("tf32", DType.F32), ("fp16", DType.F16)])
def test_weights_lie_in_memory_as_the_precision_says(precision: str, dtype: DType) -> None:
    kernels = BACKEND.stored(dense(), precision)
    (weights,) = (kernels.buffers[id].dtype for id in kernels.constants)
    assert weights is dtype
    assert BACKEND.rounded(Plan(1, (), (), {}, 0, ""), precision) == {precision} - {"fp32"}


def test_constants_that_fill_half_the_second_level_cache_are_found_in_memory() -> None:
    """In 16 bits twice as many fit."""
    kernels = dense()
    whole = sum(array.nbytes for array in kernels.constants.values())
    backend = replace(BACKEND, target=replace(BACKEND.target, l2_bytes=2 * whole - 1))
    assert backend.setting(kernels) == Setting("memory", "NVRTC 13.0")
    assert backend.setting(backend.stored(kernels, "bf16")) == Setting("cache", "NVRTC 13.0")


def test_a_target_that_is_elsewhere_has_no_machine() -> None:
    setting = Setting("cache", "NVRTC 13.0")
    with BACKEND.machine(0, never_stops, setting, print, print) as machine:
        assert machine is None
    here = replace(BACKEND, target=resolve("cuda:sm_90", GPU))
    with here.machine(7, never_stops, setting, print, print) as machine:
        assert isinstance(machine, CudaMachine)
        assert (machine.target, machine.seed, machine.setting) == (here.target, 7, setting)


def test_the_gpu_that_is_here_makes_the_target_measurable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cuda, "find_cuda_toolchain", lambda preferred: replace(TOOLCHAIN, host=Toolchain(preferred, ""))
    )
    for gpu, hardware in ((None, ""), (GPU, GPU.fingerprint), (replace(GPU, capability=(8, 0)), "")):
        monkeypatch.setattr(cuda, "gpu_here", lambda gpu=gpu: gpu)
        backend = cuda_backend(CompileOptions(target="cuda:sm_90"), {"CC": "clang"})
        assert (backend.target.hardware, backend.toolchain.host.path) == (hardware, "clang")
    assert str(backend) == "cuda:sm_90: H200, 132 multiprocessors, L2 50 MiB"


def test_calls_that_share_a_launch_take_less_than_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    joint_launch = BACKEND.joint_launch(dense())
    small, large = (Variant(tile, 8, 1, Cost(3e-6, "model")) for tile in TILES[1:4:2])
    alone, shared = joint_launch([(0, small)]), joint_launch([(0, small), (0, large)])
    assert alone is not None
    assert shared is not None
    assert alone.seconds == pytest.approx(3e-6)
    assert 3e-6 <= shared.seconds < 4e-6
    assert 0 < alone.slots <= shared.slots <= 1
    blocks: list[list[int]] = []

    def never(members: Sequence[CudaLowered], target: CudaTarget) -> bool:
        blocks.append([one.block for one in members])
        return False

    monkeypatch.setattr(cuda, "fit_together", never)
    assert joint_launch([(0, small), (0, large)]) is None
    assert joint_launch([(0, small)]) == alone
    assert blocks == [[128, 256]]
