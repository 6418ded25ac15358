"""Graph -> KernelGraph: operators become kernels, kernels are joined, layouts, views and aliases are decided.

    draft     the working form: kernels bound to values, in execution order
    scalars   one-element constants written into expressions
    inline    a map's expression put into the kernels that read it
    epilogue  a map run on each value a kernel produces, before it is stored
    layouts   which values lie channels-last
    alias     copies that become views: strided windows, and operands of a Concat written in place
    widened   conversions of outputs that are stored in fewer bytes, done by those that read them
    refusal   why two kernels that touch were not made one
    fuse      the order in which these are applied
    between   why what lies between two kernels must be stored
    separable a window channel by channel and the pointwise product that alone reads it
    excitation  a mean over positions and the two small products that follow it
    byte_attention  two products of bytes and the softmax between them
    batch     whether samples are computed each by itself, and the kernels for fewer of them
    batch_bounds  kernels of a batch of any size without choices by it
    sliced    a call that runs the kernels of a slice for each of them
    long_sums  long sums in segments, which keeps rounding errors small
    joins     calls that may be one where costs say that it pays, as these make them
    regions   loops and branches: their bodies fused by themselves
    pbqp      the cheapest choice where tables say what the choices of a few variables cost together
    layout_costs  which values had better be plain, by what kernels cost

May import: `ir`, `ops`. Must not import: devices, tiles, C.
"""

from compiler.fuse.fuse import STEPS, fuse

__all__ = ["STEPS", "fuse"]
