"""KernelGraph + menus -> Plan: which lane runs which tiles after what, and where buffers lie.

    dependencies  which calls must have ended before one may begin
    sequential    kernels one after another, each split over as many lanes as pay
    early_start   list scheduling: independent kernels side by side
    launches      on a GPU: kernels that can share a launch next to each other
    buffers       storages placed in one arena, respecting what runs when
    schedule      candidates, their verification, the choice

May know: `ir`. Must not know: how a kernel is written, what a device is beyond its lanes.
"""

from compiler.schedule.schedule import Together, schedule

__all__ = ["Together", "schedule"]
