"""Plan -> Program: C with vector extensions, the host's C entry points, the library.

    lower          one kernel, by its tile's algorithm     lowered     what that gives, and how a kernel function begins
    writer         indented text                           c_scalar    functions, casts and literals as C
    c_expr         expressions and indices as C, scalar or vectorised
    c_strips       loops over vectors along an axis        c_epilogue  what follows a product on its results
    task_grid      what points tile tasks work on          regions     what bytes they read and write

Algorithms:

    c_loops        `loops`: any kernel                     c_transpose its maps that are turned in registers
    c_contraction  `contraction`: products of fp32         c_winograd  `winograd`: convolutions of unit stride
    c_integer      `integer`: products of bytes            c_bf16      `bf16`: products rounded to bf16
    c_gemv         `gemv`, `gemv24`: products of few rows  c_recurrent `recurrent`, `recurrent24`: recurrent layers
    c_attention    `attention`                             c_window    `window`: sums and extremes, channel by channel
    c_routine      what is written by hand

What they share:

    c_micro        the innermost loops of a product        c_operands  how its operands are brought to it
    c_rows         those of a product of few rows          c_dot       products of groups that fill a lane

The program:

    host           the plan as tables                      weights     the weights file
    build          the C compiler                          emit        all of it together
    cuda           what CUDA kernels are written with, and their compiler

May know: `ir`, `targets`. Must not know: where a tile or plan came from.
"""
