"""Tunes kernels that another process offered (`compiler.tuning.helpers`), on the device of this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.contract import CompileOptions
from compiler.errors import TargetUnavailable
from compiler.ir.machine import Setting
from compiler.request import Host
from compiler.session import Session
from compiler.steps.tiling.step import tiler_of
from compiler.trace import Observer, StopRequest, Trace
from compiler.tuning.helpers import Task, Terms
from compiler.tuning.tune import measure_for_another


def tune_kernels(
    tasks: Sequence[Mapping[str, Any]],
    terms: Mapping[str, Any],
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]],
    observe: Observer,
    stop_requested: StopRequest,
    more: Callable[[float, int], Sequence[Mapping[str, Any]]],
) -> int:
    """Measures tiles of kernels until there are no more; how many. Records leave as events.

    more  gives the next tasks: seconds that the last ones took and how many tiles were measured -> tasks

    Raises TargetUnavailable where the device, or its C compiler, is not the one that the kernels were offered for.
    """
    trace = Trace(observe)
    session = Session.of(options, Host(records, stop_requested=stop_requested), trace)
    asked = Terms.from_json(terms)
    setting = Setting(**asked.setting)
    backend = session.backend.alike(session.records, setting)
    if backend is None:
        raise TargetUnavailable(
            "these kernels are measured with another C compiler than the one here",
            fix="give all workers of a device the same C compiler, or leave TILEWRIGHT_FAN_OUT off",
        )
    session.backend = backend
    tiler = tiler_of(backend)

    def next_tasks(seconds: float, measured: int) -> list[Task]:
        return [Task.from_json(task) for task in more(seconds, measured)]

    with trace.step("tile"), session.machine(setting) as machine:
        if machine is None:
            raise TargetUnavailable(f"target {backend.target.name} is not here", fix="let its own worker measure")
        first = [Task.from_json(task) for task in tasks]
        return measure_for_another(first, asked, tiler, machine, trace, next_tasks)
