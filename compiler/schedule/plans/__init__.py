"""Kernels and menus as a problem, a schedule of it as a Plan.

dependencies  which calls must have ended before one may begin
instance      kernels and menus as a problem
tasks         a schedule as tasks: what each waits for
conflicts     which tasks touch the same bytes
lanes_plan    a schedule as a plan: memory, tasks, verification
found         a plan and how long it took to find
works         what each task of a plan takes by itself
replay        a plan simulated task by task: when each runs
"""
