"""KernelGraph + menus -> Plan: which lane runs which tiles after what, and where buffers lie.

    dependencies    which calls must have ended before one may begin
    moves           what calls read of what others wrote, by bytes
    problem         the scheduling problem, what a schedule of it is, lower bounds; formally in docs/scheduling.md
    instance        kernels and menus as a problem, a schedule as a Plan
    sequential      kernels one after another, each split over as many lanes as pay
    placing         where a call ends first, given what has been placed
    early_start     list scheduling: independent kernels side by side
    beam            list scheduling that looks ahead
    critical_path   list scheduling by upward rank, into gaps
    on_gpu          plans for a GPU
    launches        on a GPU: calls that can share a launch, in levels
    launch_modes    on a GPU: the variants under which calls share a launch
    slots           on a GPU: block slots as the resource; what a graph of launches takes
    gpu_stages      on a GPU: stages whose groups run beside each other or share launches
    streams         on a GPU: launches on as few streams as there can be
    graph_plan      on a GPU: a graph of launches as a plan
    allotment       how many lanes each call gets, from critical path and area
    cut             blocks in series and side by side
    clusters        chains of calls that one lane runs without a hand-over
    stages          dynamic programming over endings; stage_lanes and stage_schedule make a schedule of it
    refined         stages from measurements: solve, measure the solution, solve again
    descent         lanes and order of a block changed as long as that helps
    contention      what a schedule takes when calls slow each other
    candidates      all of these by name
    optimal         the optimum by a constraint solver, a yardstick
    found           what a scheduler gives: a plan and how long it took to find
    works           what each task of a plan takes by itself
    replay          a plan carried out task by task: when each is to run
    aligned         kernels one after another, split so that lanes read what they wrote
    tasks           a schedule as the tasks of a plan: what each waits for
    conflicts       which tasks touch the same bytes
    strays          what parts of a call touch that lies with another lane
    lanes_plan      a schedule as a plan: memory, tasks, verification
    crossing        how much of what lanes read another wrote
    buffers         storages placed in one arena, respecting what runs when
    schedule        plans of the candidates, their verification, and what any plan is predicted to take

May know: `ir`. Must not know: how a kernel is written, what a device is beyond its lanes.
"""

from compiler.schedule.dependencies import in_company
from compiler.schedule.launch_modes import Together
from compiler.schedule.schedule import predicted, schedule

__all__ = ["Together", "in_company", "predicted", "schedule"]
