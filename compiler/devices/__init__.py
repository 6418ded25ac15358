"""Kinds of device, a package each, and what is asked of whichever kind a job is for.

kinds   what is asked of the kind that a target's name begins with
kind    DeviceKind: what a kind answers before a device of it is opened
device  the protocol of an opened device
whole   whole programs run in turn by the loader that artifacts have
cpu     cores of a machine, C with vector extensions, the machine's C compiler
cuda    GPUs of NVIDIA, CUDA C++, NVRTC

Kinds do not know each other. May know: every stage, `codegen`, `forms`, `knowledge`, `ir`.
"""
