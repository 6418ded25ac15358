"""`python -m tests.compiler.devices.cuda.measure.faulty_programs`: `programs`, of which one program has a fault.

TW_PLAN_FAULT names the fault and the folder of the program, such as `hang plan1`; `*` is every program.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from compiler.devices.cuda.measure import programs
from compiler.knowledge import budget
from compiler.measure.benchmark import Run
from compiler.pack.loader import Model, RunError

RUNNING_S = 10.0
"""After which a program with a fault is taken to hang."""
RACING_S = 15.0
"""After which a race of one is."""


def refuse(code: int) -> None:
    """All launches fail from now on: on the double of CUDA as the driver says it, elsewhere as the loader does."""
    if "TW_DOUBLE" not in os.environ:
        raise RunError(f"a kernel failed with {code}. This process cannot use the GPU any more")
    driver = ctypes.CDLL("libcuda.so.1")
    assert all(driver.twd_configure(f"fail=cuGraphLaunch:{call}:{code}".encode()) for call in range(1, 1000))


FAULTS: Mapping[str, Callable[[], object]] = {
    "hang": lambda: time.sleep(600),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "illegal": lambda: refuse(700),
    "launch": lambda: refuse(719),
    "wrong": lambda: None,
    "unsteady": lambda: None,
}
"""In a run by itself."""
IN_THE_RACE: Mapping[str, Callable[[], object]] = {"race-hang": FAULTS["hang"], "race-crash": FAULTS["crash"]}


def inject(fault: str, folder: str) -> None:
    """From now on runs of the program in this folder have the fault, and most of a tuning budget is for plans."""
    run, run_flat, bind, runs = Model.run, Model.run_flat, Model.bind, [0]

    def begin(model: Model) -> np.float32:
        """The fault; by what the outputs of a run are multiplied."""
        if folder not in (model.path.name, "*") or fault not in FAULTS:
            return np.float32(1)
        FAULTS[fault]()
        runs[0] += 1
        is_wrong = fault == "wrong" or (fault == "unsteady" and runs[0] == 2)
        return np.float32(1.25 if is_wrong else 1)

    def faulty(model: Model, *arguments: Any, **more: Any) -> Mapping[str, Any]:
        factor = begin(model)
        return {
            name: array * factor if factor != 1 else array for name, array in run(model, *arguments, **more).items()
        }

    def faulty_flat(model: Model, *arguments: Any, **more: Any) -> list[Any]:
        factor = begin(model)
        return [array * factor if factor != 1 else array for array in run_flat(model, *arguments, **more)]

    def bound(model: Model, *arguments: Any, **more: Any) -> Run:
        if model.path.name == folder and fault in IN_THE_RACE:
            IN_THE_RACE[fault]()
        found: Run = bind(model, *arguments, **more)
        return found

    others = {name: 0.02 for name in budget.SHARES if name not in (budget.TILES, "plans")}
    budget.SHARES = MappingProxyType({**others, budget.TILES: 0.1, "plans": 0.9 - sum(others.values())})
    programs.RUNNING_S, programs.RACING_S = RUNNING_S, RACING_S
    Model.run, Model.run_flat, Model.bind = faulty, faulty_flat, bound  # type: ignore[method-assign, assignment]


def injected(arguments: Sequence[str]) -> None:
    """`programs` with the fault."""
    inject(*os.environ["TW_PLAN_FAULT"].split())
    runpy.run_module(programs.__name__, run_name="__main__")


if __name__ == "__main__":
    injected(())
