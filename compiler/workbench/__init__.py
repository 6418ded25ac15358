"""Where generated code meets measuring, one file for each kind of target.

backend     what the pipeline asks of any of them
cpu         cores of a machine, C, the machine's C compiler
cuda        GPUs, CUDA C++, NVRTC
candidates  CUDA kernels compiled one at a time, and what speaks against them
planning    from kernels and menus to the plans of an artifact
plans       which plan is taken: candidates beside the sequential one
guards      a second plan, for cores in the other state: near where they are far, far where they are near
repacked    how much a second plan makes the weights grow
spans       when tasks of a plan ran, as text in a record
whole       whole programs run in turn
stepper     single calls run on a GPU, for bisection
shipped     records that come with the compiler
costs       what kernels cost, by records or by the model
lane_costs  what the lanes of a plan cost each other, by records, and the measurements for that
graph_costs what small programs cost, for the search over choices
choosing    the search over choices, and the measurements that are made for it
explain     the logs of rewriting and fusion, grouped for a person
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.contract import CompileOptions
from compiler.workbench.backend import Backend
from compiler.workbench.cpu import cpu_backend, environment_compiler
from compiler.workbench.cuda import cuda_backend
from compiler.workbench.plans import Choice, Subject, choose_plan, state_of

BACKENDS: Mapping[str, Callable[[CompileOptions, Mapping[str, str]], Backend]] = {
    "cpu": cpu_backend,
    "cuda": cuda_backend,
}


def backend_of(options: CompileOptions, environment: Mapping[str, str]) -> Backend:
    """What compiles for a job's target. Raises TargetUnavailable, ToolchainMissing."""
    return BACKENDS[options.kind](options, environment)


__all__ = [
    "BACKENDS",
    "Backend",
    "Choice",
    "Subject",
    "backend_of",
    "choose_plan",
    "environment_compiler",
    "state_of",
]
