"""GPUs of NVIDIA: CUDA C++, NVRTC."""

from __future__ import annotations

from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.device import cuda_backend
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES, CudaTarget, resolve
from compiler.devices.kind import DeviceKind
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile


def _source(name: str, workload: Workload, tile: Tile, target: CudaTarget) -> str:
    return f"{PREAMBLE}\n{lower_cuda(name, workload, tile, target).text}"


KIND = DeviceKind(PROFILES, lambda name: resolve(name, None), cuda_backend, legal_tiles, _source)
