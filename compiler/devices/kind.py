"""What one kind of device answers before any device of it is opened.

`DeviceKind` where kernels are compiled for it, `WholeKind` where a compiler of its own takes a model whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.contract import CompileOptions, CompileReport
from compiler.devices.device import Backend
from compiler.ir.machine import Workload
from compiler.ir.target import Target
from compiler.ir.tile import Tile
from compiler.request import Request
from compiler.trace import Trace
from compiler.tuning.proposal import Proposal


@dataclass(frozen=True)
class DeviceKind:
    """The compiler's part of a kind, which `compiler.contract.kinds` names. Any target taken is one of this kind.

    profiles     the targets that can be compiled for on any machine, best first
    resolve      the target that a name stands for here; raises TargetUnavailable
    open         what compiles for a job's target, with the compilers that an environment names; raises
                 TargetUnavailable, ToolchainMissing
    legal_tiles  every legal tile of a workload on a target, for a plan of so many lanes, in a precision
    source       the code of a workload under a tile on a target, as a function of a name, after what it includes
    """

    profiles: tuple[Target, ...]
    resolve: Callable[[str], Target]
    open: Callable[[CompileOptions, Mapping[str, str]], Backend]
    legal_tiles: Callable[[Workload, Any, int, str], list[Proposal]]
    source: Callable[[str, Workload, Tile, Any], str]


CompilePart = Callable[[Request], CompileReport]
"""`compiler.pipeline.compile_model`, for a part of a model that another device than its own carries out."""
CompileWhole = Callable[[Request, Trace, CompilePart], CompileReport]
"""From a model's bytes to an artifact that was judged, as `compiler.pipeline.compile_model`; each of its steps is one
of the trace."""


@dataclass(frozen=True)
class WholeKind:
    """The compiler's part of a kind whose models another compiler takes whole: no kernels, tiles, plans or records.

    profiles         the names of the targets that can be compiled for on any machine
    resolve          the target that a name stands for; raises TargetUnavailable
    demand_possible  raises OptionsError for options that no model can be compiled under
    compile          the model as an artifact
    """

    profiles: tuple[str, ...]
    resolve: Callable[[str], str]
    demand_possible: Callable[[CompileOptions], None]
    compile: CompileWhole
