"""What every printer of C and CUDA C++ shares, and the C compiler.

    writer       indented text
    scalars      functions, casts and literals as C
    expressions  expressions and indices as C, scalar or vectorised
    reductions   the order of reduction loops, what they begin from, one step
    functions    how a generated function begins
    region_bodies  what bodies of loops and branches are to every kind of device
    calls        calls as workloads, names of generated functions
    task_grid    what points tile tasks work on
    weights      the weights file
    host_tables  what model.c holds for every kind of device
    build        the C compiler

May import: `ir`, `forms`. Must not depend on: a kind of device, where a tile or plan came from.
"""
