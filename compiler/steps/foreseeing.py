"""What proving an artifact will take, reported before anything is built, and refused beyond what is granted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from compiler.contract import CompileOptions
from compiler.devices.device import Runner
from compiler.errors import ModelTooLarge, Unverified
from compiler.frontend import Loaded
from compiler.ir.graph import Graph, Node
from compiler.ops import OPERATORS
from compiler.prove.agree import Why
from compiler.prove.effort import Effort, reference_effort
from compiler.prove.foresee import foresee
from compiler.prove.samples import Sample
from compiler.session import Session

EMULATED = 20.0
"""Seconds that a run in an emulator takes for each second of an evaluation of the reference, at most: between 8 and 20
of qemu-user with convolutional networks, by the floating-point operations that it emulates one by one."""
FORESEEN_S, FORESEEN_BYTES = 1.0, 1 << 30
"""Of one evaluation of the reference, up to which it is done before anything is built, too."""
BY_ROUNDING = "by_rounding"
"""In the details of an Unverified: an artifact that rounds less may be shown to be right."""
TOLD_FROM_S = 30.0
TOLD_FROM_BYTES = 4 << 30
"""From which on a notice says what proving takes."""


def is_run(graph: Graph, options: CompileOptions, runner: Runner | None) -> bool:
    """Whether the artifact is going to be run: something runs it, within the time that the options grant."""
    if runner is None:
        return False
    return not runner.emulator or EMULATED * reference_effort(graph).seconds <= options.proof_limit_s


def foreseen(graph: Graph, options: CompileOptions, memory_bytes: int | None = None) -> Effort:
    """What one evaluation of the reference takes.

    `memory_bytes` is what this process may use; None: as much as the machine has. Raises ModelTooLarge, which names a
    node, the estimate and the limit.
    """
    effort = reference_effort(graph)
    if problem := proof_problem(effort, options) or _memory_problem(effort, memory_bytes or _memory_of_machine()):
        raise problem
    return effort


def foreseen_outputs(session: Session, loaded: Loaded, effort: Effort | None, samples: Sequence[Sample]) -> None:
    """Tells which outputs are not finite on random inputs, before anything is built.

    Raises Unverified for outputs that no drawn inputs will show, where there are no samples and the options do not
    allow that. Skipped where dimensions are open, or one evaluation takes longer than FORESEEN_S.
    """
    is_open = loaded.open_shapes is not None and bool(loaded.open_shapes.dimensions)
    if effort is None or is_open or effort.seconds > FORESEEN_S or effort.bytes > FORESEEN_BYTES:
        return
    found = foresee(loaded.graph, OPERATORS, session.options.seed, loaded.open_shapes)
    if found.not_finite:
        session.trace.notice(found.not_finite)
    if found.unshown and not samples and session.options.unverified != "allow":
        if all(why is Why.OUTSIDE for why in found.unshown.values()):
            return  # the proof says which node they lead outside of
        raise unverified(found.unshown)


def unverified(unshown: Mapping[str, str], *, by_rounding: bool = False) -> Unverified:
    """The error for outputs of which nothing shows whether the artifact computes them, by name, each with why."""
    each = {why: [name for name, one in unshown.items() if one == why] for why in dict.fromkeys(unshown.values())}
    said = "; ".join(f"{', '.join(map(repr, names))}: {why}" for why, names in each.items())
    fix = "give samples on which each of these outputs is finite and not empty"
    if by_rounding:
        fix += ', or state how much error is acceptable, such as {"tolerance": 0.05}'
    return Unverified(
        f"drawn inputs cannot verify the artifact. Outputs {said}",
        fix=f'{fix}; or accept an unverified artifact by the option {{"unverified": "allow"}}',
        details={"unshown": list(unshown), **({BY_ROUNDING: True} if by_rounding else {})},
    )


def proof_problem(effort: Effort, options: CompileOptions) -> ModelTooLarge | None:
    """The error for a reference that takes longer than the options grant."""
    if effort.seconds <= options.proof_limit_s:
        return None
    slowest = max(effort.node_s)
    return ModelTooLarge(
        f"proving the artifact would take about {effort.seconds:.0f} s for one evaluation of the float64 reference, of "
        f"which {slowest:.0f} s are {_named(effort.slowest)}; proof_limit_s grants {options.proof_limit_s:g} s",
        fix="bind smaller shapes, or grant more seconds by the option proof_limit_s",
        details={
            "proof_s": round(effort.seconds, 1),
            "limit_s": options.proof_limit_s,
            "node": _source(effort.slowest),
        },
    )


def proof_notices(effort: Effort) -> list[str]:
    """That proving takes long, or much memory, where it does."""
    if effort.seconds <= TOLD_FROM_S and effort.bytes <= TOLD_FROM_BYTES:
        return []
    return [
        f"one evaluation of the float64 reference, by which the artifact is proved, takes about {effort.seconds:.0f} s "
        f"and {effort.bytes / 2**30:.1f} GiB"
    ]


def run_notices(agreed: bool, runner: Runner | None, target: str) -> list[str]:
    """That nothing was run, and why, or that an emulator ran it."""
    if agreed:
        how = f"agreement was judged under {runner.emulator}" if runner and runner.emulator else ""
        return [f"{how}: this machine is no {target}, and no time was measured"] if how else []
    nothing = f"nothing was run or compared with the reference: this machine is no {target}"
    return [f"{nothing}, and under {runner.emulator} it would take longer than proof_limit_s" if runner else nothing]


def _memory_problem(effort: Effort, limit: int) -> ModelTooLarge | None:
    if effort.bytes <= limit:
        return None
    return ModelTooLarge(
        f"proving the artifact would take about {effort.bytes / 2**30:.1f} GiB of memory for the float64 reference, "
        f"most of it at {_named(effort.largest)}; there are {limit / 2**30:.1f} GiB",
        fix="bind smaller shapes, or use a worker with more memory",
        details={"proof_bytes": effort.bytes, "limit_bytes": limit, "node": _source(effort.largest)},
    )


def _named(node: Node | None) -> str:
    return f"node {node.source!r} ({node.op})" if node else "its inputs and outputs"


def _source(node: Node | None) -> str:
    return node.source if node else ""


def _memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
