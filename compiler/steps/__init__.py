"""The steps of the pipeline that need more than one room: what a stage asks for is made here of what others give.

loading      the graph of a request, and the same at other sizes
choosing     the search over choices, and the measurements that are made for it
tiling       menus of all kernels, those inside of regions and slices too, and the joins that pay
costs        what kernels, graphs, lanes and precisions cost, by records or by the model
planning     from kernels and menus to the plans of an artifact: which one is taken, and those for other cores
precisions   fp32 or a shorter type for each kernel, within a budget of error
building     an artifact under one rounding policy: tile, schedule, emit, pack
joining      artifacts for several bindings or profiles of a model, packed into one
proving      the artifact run against the reference, and (`foreseeing`) what that will take
states       states that inferences hand on, and caches of fewer bits
dividing     a graph divided among several devices
chunking     an output that is given piece by piece
probing      what a loader runs once on each machine
explain      the logs of rewriting and fusion, grouped for a person
"""

from __future__ import annotations

from compiler.steps.costs.lanes import state_of
from compiler.steps.planning.choice import Choice, Subject, choose_plan

__all__ = [
    "Choice",
    "Subject",
    "choose_plan",
    "state_of",
]
