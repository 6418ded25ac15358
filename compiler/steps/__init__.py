"""The steps of the pipeline that need more than one room: what a stage asks for is made here of what others give.

building     an artifact under one rounding policy: tile, schedule, emit, pack
joining      artifacts for several bindings of a model's dimensions, packed into one
proving      the artifact run against the reference
tiling       menus of all kernels, and the joins that pay
precisions   fp32 or bf16 for each kernel, within a budget of error
precision_costs  what kernels take in fp32, in bf16, and beside each other
regions      the calls inside of loops and branches, tiled beside the others
choosing     the search over choices, and the measurements that are made for it
costs        what kernels cost, by records or by the model
graph_costs  what small programs cost, for the search over choices
planning     from kernels and menus to the plans of an artifact
plans        which plan is taken: candidates beside the sequential one
guards       a second plan, for cores in the other state: near where they are far, far where they are near
lane_costs   what the lanes of a plan cost each other, by records, and the measurements for that
spans        when tasks of a plan ran, as text in a record
zeros        how zeros lie in weights, and which kernels leave them out
explain      the logs of rewriting and fusion, grouped for a person
"""

from __future__ import annotations

from compiler.steps.lane_costs import state_of
from compiler.steps.plans import Choice, Subject, choose_plan

__all__ = [
    "Choice",
    "Subject",
    "choose_plan",
    "state_of",
]
