"""CPUs: cores of a machine, C with vector extensions, the machine's C compiler.

kind        the descriptor
target      instruction-set profiles, and what this machine is; rates: how fast its cores are
device      what the pipeline asks of an opened target
algorithms  the ways to carry out a kernel, one module each
codegen     what these print with: C functions, vector loops, micro-kernels
emit        the program: a kernel lowered, the plan as tables, the library
runtime     headers that generated C is made with
measure     kernels, stages and hand-overs timed on this machine's cores
wasm        browsers, which share all of this but the C compiler, a part of the runtime, and measuring
repacked    how much a second plan makes the weights grow
"""
