"""What is asked of whichever kind of device a target's name begins with.

Kinds are registered in `compiler.contract.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from compiler.codegen.calls import function_name
from compiler.contract import CompileOptions, kinds
from compiler.contract.kinds import Kind
from compiler.devices.device import Backend
from compiler.devices.kind import DeviceKind, WholeKind
from compiler.errors import TargetUnavailable
from compiler.ir.machine import Workload
from compiler.ir.target import Target
from compiler.ir.tile import Tile
from compiler.tuning import tune
from compiler.tuning.menus import LegalTiles
from compiler.tuning.proposal import Proposal


def descriptor(kind: Kind) -> DeviceKind:
    """What the compiler's package of a registered kind says of it. The package is loaded when it is asked for."""
    found = import_module(f"{kind.package}.kind").KIND
    assert isinstance(found, DeviceKind)
    return found


def profiles() -> tuple[Target, ...]:
    """The targets that kernels can be compiled for on any machine, of every kind."""
    return tuple(profile for kind in kinds.KINDS if not kind.whole for profile in descriptor(kind).profiles)


def kind_of(target: str) -> DeviceKind:
    """The kind that a target's name begins with.

    Raises TargetUnavailable where there is none, and where its models are compiled whole.
    """
    kind = kinds.find(target)
    if kind is None:
        raise TargetUnavailable(
            f"target {target!r} is unknown", fix=f"use {' or '.join(kinds.names())}, or a profile of it"
        )
    if kind.whole:
        raise TargetUnavailable(
            f"target {target!r} has no kernels: its models are compiled whole", fix="use a target of another kind"
        )
    return descriptor(kind)


def whole_kind_of(target: str) -> WholeKind | None:
    """The kind that a target's name begins with, if its models are compiled whole; else None."""
    kind = kinds.find(target)
    if kind is None or not kind.whole:
        return None
    found = import_module(f"{kind.package}.kind").KIND
    assert isinstance(found, WholeKind)
    return found


def profiles_like(target: str) -> tuple[str, ...]:
    """The names of the targets of the kind that a target's name begins with. Raises TargetUnavailable."""
    whole = whole_kind_of(target)
    return whole.profiles if whole else tuple(profile.name for profile in kind_of(target).profiles)


def resolved_name(target: str) -> str:
    """That of the profile which a target stands for here. Raises TargetUnavailable."""
    whole = whole_kind_of(target)
    return whole.resolve(target) if whole else resolve(target).name


def resolve(name: str) -> Target:
    """The target that a name stands for: a kind alone is what this machine has of it. Raises TargetUnavailable."""
    return kind_of(name).resolve(name)


def backend_of(options: CompileOptions, environment: Mapping[str, str]) -> Backend:
    """What compiles for a job's target. Raises TargetUnavailable, ToolchainMissing."""
    return kind_of(options.target).open(options, environment)


def tiles_of(target: Target) -> LegalTiles:
    """What lists the legal tiles of workloads on a target."""
    legal_tiles = kind_of(target.name).legal_tiles
    return lambda workload, lanes, precision: legal_tiles(workload, target, lanes, precision)


def propose(
    workload: Workload, target: Target, lanes: int, error: float = 0.0, precision: str = "fp32"
) -> list[Proposal]:
    """The legal tiles of every algorithm of the target's kind that add no more than `error`.

    The best by the model comes first.
    """
    return tune.propose(tiles_of(target), workload, lanes, error, precision)


def source_of(workload: Workload, tile: Tile, target: Target) -> str:
    """The code of one kernel under a tile, as it stands in an artifact, after what it includes."""
    return kind_of(target.name).source(function_name(workload, 0), workload, tile, target)
