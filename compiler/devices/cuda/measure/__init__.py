"""Kernels timed on a GPU, in a process apart: a fault costs one trial.

machine   candidates in rounds, beside a probe of the clock
apart     the process; bench: what it does
driver    the CUDA driver by ctypes
nvml      clocks, temperature, who else is there; facts: what a GPU says of itself
"""
