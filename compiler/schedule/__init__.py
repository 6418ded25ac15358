"""KernelGraph + menus -> Plan: which lane runs which tiles after what, and where buffers lie.

    dependencies    which calls must have ended before one may begin
    problem         the scheduling problem, what a schedule of it is, lower bounds; formally in docs/scheduling.md
    instance        kernels and menus as a problem, a schedule as a Plan
    sequential      kernels one after another, each split over as many lanes as pay
    early_start     list scheduling: independent kernels side by side
    on_gpu          plans for a GPU
    launches        on a GPU: kernels that can share a launch next to each other
    allotment       how many lanes each call gets, from critical path and area
    cut             blocks in series and side by side
    clusters        chains of calls that one lane runs without a hand-over
    stages          dynamic programming over endings; stage_lanes and stage_schedule make a schedule of it
    descent         lanes of single calls changed as long as that helps
    candidates      all of these by name
    optimal         the optimum by a constraint solver, a yardstick
    tasks           a schedule as the tasks of a plan
    buffers         storages placed in one arena, respecting what runs when
    schedule        plans of the candidates, their verification

May know: `ir`. Must not know: how a kernel is written, what a device is beyond its lanes.
"""

from compiler.schedule.on_gpu import Together
from compiler.schedule.schedule import schedule

__all__ = ["Together", "schedule"]
