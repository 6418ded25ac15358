"""Kernels timed on a GPU of this machine: its driver through ctypes, its sensors, and a bench in a process of its own."""
