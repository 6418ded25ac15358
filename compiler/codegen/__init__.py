"""Plan -> Program: C with vector extensions, the host's C entry points, the library.

    c_scalar       functions, casts and literals as C
    c_expr         expressions and indices as C, scalar or vectorised
    c_loops        the `loops` algorithm        c_contraction  the `contraction` algorithm
    c_transpose    maps turned in registers     c_window       the `window` algorithm
    c_micro        the innermost loops of a product   c_operands     how its operands are brought to it
    c_routine      what is written by hand      lower          one kernel, by its tile's algorithm
    host           the plan as tables           weights        the weights file
    build          the C compiler               emit           all of it together

May know: `ir`, `targets`. Must not know: where a tile or plan came from.
"""
