"""Kernels, stages and hand-overs timed on this machine's cores.

machine   candidates in rounds, in turn, beside a probe of the clock
timer     the library that times them (timer.c, stages.c)
operands  memory that a kernel is timed on
rates     what a core computes, and reads from each level, per nanosecond
handover  what it costs one core to see another's store
stages    tasks of several kernels on their lanes
"""
