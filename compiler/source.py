"""The C or CUDA source of one tuning record, generated anew from its workload, its variant and its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.devices import kinds
from compiler.errors import InternalError, SourceUnavailable, TilewrightError
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Tile


def source_of(text: str, variant: Mapping[str, Any], target: str) -> str:
    """C of the kernel that a record measured, as it stands in an artifact, or CUDA C++ for a CUDA target.

    text     the workload, as `str(Workload)` prints it
    variant  the tile, as records carry it (`Tile.to_json`, other keys ignored)
    target   a profile's name, such as `cpu:x86-64-v4` or `cuda:sm_90`; no compiler and no machine of that kind is
             needed

    Nothing given is trusted: whatever goes wrong is raised as SourceUnavailable. Records from elsewhere may still
    describe a kernel that takes long to generate, so that this runs under limits.
    """
    try:
        workload = parse_workload(text)
        workload.verify()
        return kinds.source_of(workload, Tile.from_json(variant), kinds.resolve(target))
    except TilewrightError as error:
        reason = "what it says is not consistent" if isinstance(error, InternalError) else error.message
        raise _unavailable(reason, error) from error
    except Exception as error:
        raise _unavailable("its workload or its variant cannot be read", error) from error


def _unavailable(reason: str, error: Exception) -> SourceUnavailable:
    return SourceUnavailable(
        f"no source can be generated from this record: {reason}",
        fix="measure it again with this version; an imported record must carry the workload, variant and target "
        "as they were exported",
        details={"error": f"{type(error).__name__}: {error}"[:500]},
    )
