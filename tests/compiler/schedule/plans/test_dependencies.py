"""Which calls can run at the same time, against every path of the graph."""

from __future__ import annotations

from hypothesis import given, settings

from compiler.ir.buffers import KernelGraph
from compiler.schedule.plans.dependencies import may_run_concurrently, predecessors
from tests.compiler.schedule.test_schedule import chain, kernel_graphs


@given(kernel_graphs())
@settings(max_examples=100, deadline=None)
def test_a_call_is_in_company_if_no_path_joins_it_to_some_other(kernels: KernelGraph) -> None:
    before = predecessors(kernels)

    def reaches(call: int, goal: int) -> bool:
        return any(one == goal or reaches(one, goal) for one in before[call])

    calls = range(len(before))
    assert may_run_concurrently(kernels) == tuple(
        any(one != call and not reaches(one, call) and not reaches(call, one) for one in calls) for call in calls
    )


def test_calls_of_a_chain_run_alone() -> None:
    assert not any(may_run_concurrently(chain()))
