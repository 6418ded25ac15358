"""KernelGraph + menus -> Plan: which lane runs which tiles after what, and where buffers lie.

    problem   the scheduling problem, what a schedule of it is, lower bounds; formally in docs/scheduling.md
    solvers   schedules of the problem
    memory    where storages lie, and what tasks touch of them
    plans     kernels and menus as a problem, a schedule as a plan, a plan replayed
    gpu       schedules of launches on a GPU
    rules     what a compilation may do without
    schedule  plans of the candidates, their verification, and what any plan is predicted to take

May know: `ir`. Must not know: how a kernel is written, what a device is beyond its lanes.
"""

from compiler.schedule.gpu.launch_modes import JointLaunch
from compiler.schedule.gpu.on_gpu import PERSISTENT
from compiler.schedule.gpu.resident import ResidentBlocks
from compiler.schedule.plans.dependencies import may_run_concurrently
from compiler.schedule.rules import SCHEDULING
from compiler.schedule.schedule import predicted, schedule

__all__ = [
    "PERSISTENT",
    "SCHEDULING",
    "JointLaunch",
    "ResidentBlocks",
    "may_run_concurrently",
    "predicted",
    "schedule",
]
