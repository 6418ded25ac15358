"""The C or CUDA source of one tuning record, generated anew from its workload, its variant and its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.codegen.cuda.lower import lower_cuda
from compiler.codegen.cuda.lowered import PREAMBLE
from compiler.codegen.lower import function_name, lower
from compiler.errors import InternalError, SourceUnavailable, TilewrightError
from compiler.ir.machine import Workload
from compiler.ir.parse import parse_workload
from compiler.ir.tile import Tile
from compiler.targets.cpu import CpuTarget
from compiler.targets.cuda import CudaTarget
from compiler.targets.resolve import resolve

HEADER = '#include "tw_kernel.h"\n'
"""What a kernel in C stands after; the header is in `compiler/codegen`, those of PREAMBLE are in `compiler/codegen/cuda`."""


def source_of(text: str, variant: Mapping[str, Any], target: str) -> str:
    """C of the kernel that a record measured, as it stands in an artifact, or CUDA C++ for a CUDA target.

    text     the workload, as `str(Workload)` prints it
    variant  the tile, as records carry it (`Tile.to_json`, other keys ignored)
    target   a profile's name, such as `cpu:x86-64-v4` or `cuda:sm_90`; no compiler and no machine of that kind is needed

    Nothing given is trusted: whatever goes wrong is raised as SourceUnavailable. Records from elsewhere may still describe a
    kernel that takes long to generate, so that this runs under limits.
    """
    try:
        workload = parse_workload(text)
        workload.verify()
        return _source(workload, Tile.from_json(variant), target)
    except TilewrightError as error:
        reason = "what it says is not consistent" if isinstance(error, InternalError) else error.message
        raise _unavailable(reason, error) from error
    except Exception as error:
        raise _unavailable("its workload or its variant cannot be read", error) from error


def _source(workload: Workload, tile: Tile, name: str) -> str:
    target = resolve(name)
    called = function_name(workload, 0)
    if isinstance(target, CudaTarget):
        return f"{PREAMBLE}\n{lower_cuda(called, workload, tile, target).text}"
    assert isinstance(target, CpuTarget)
    return f"{HEADER}\n{lower(called, workload, tile, target).text}"


def _unavailable(reason: str, error: Exception) -> SourceUnavailable:
    return SourceUnavailable(
        f"no source can be generated from this record: {reason}",
        fix="measure it again with this version; an imported record must carry the workload, variant and target as they were exported",
        details={"error": f"{type(error).__name__}: {error}"[:500]},
    )
