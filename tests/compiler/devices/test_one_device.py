"""Plans that no kind of device carries out yet are refused before anything is generated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from compiler.devices.cpu.emit.program import emit, emit_each
from compiler.devices.cuda.emit.program import emit_cuda
from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Copy, Memory, Plan, Task

KERNELS = KernelGraph({}, (), (), ())
ONE = Plan(1, (), (), {}, 0, "sequential")
NOTHING = cast(Any, None)
"""In the place of a target and a toolchain, which are not asked."""

REFUSED = (
    (replace(ONE, devices=("", "npu")), "for 2 devices with 1 memories"),
    (replace(ONE, more_memories=(Memory(0, 64),)), "for 1 devices with 2 memories"),
    (replace(ONE, tasks=(Copy(0, 0, 0, 0, 4, 0),)), "copies between memories"),
    (replace(ONE, tasks=(Task(0, 0, 0, 1, device=1),)), "on a device that is not the only one"),
)


@pytest.mark.parametrize(("plan", "says"), REFUSED)
def test_emitters_refuse_plans_with_other_devices_or_copies(plan: Plan, says: str) -> None:
    with pytest.raises(VerifyError, match=says):
        emit(KERNELS, plan, NOTHING, NOTHING, 1)
    with pytest.raises(VerifyError, match=says):
        emit(KERNELS, replace(ONE, most_handover_s=1e-7), NOTHING, NOTHING, 1, others=(plan,))
    with pytest.raises(VerifyError, match=says):
        emit_each(KERNELS, [ONE, plan], NOTHING, NOTHING, 1)
    with pytest.raises(VerifyError, match=says):
        emit_cuda(KERNELS, plan, NOTHING, NOTHING, 1)
