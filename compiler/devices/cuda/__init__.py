"""GPUs of NVIDIA: CUDA C++ compiled by NVRTC, measured where a GPU is.

kind        the descriptor
target      what one kind of GPU has of everything
device      what the pipeline asks of an opened target
model       what a kernel should cost beside its own work
algorithms  the ways to carry out a kernel, one module each
products    what products are put together from, and the model of their blocks
codegen     what these print with: fragments, panels, scalars
emit        the program: kernels, the plan as a graph of launches, the host's library
runtime     headers that generated code is made with
nvrtc       source to a cubin or PTX, with registers and spills; toolchain: NVRTC and a C compiler
candidates  kernels compiled one at a time, and what speaks against them
measure     kernels timed on a GPU, in a process apart
stepper     single calls, run for bisection
"""
