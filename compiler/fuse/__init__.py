"""Graph -> KernelGraph: operators become kernels, kernels are joined, layouts chosen, views and in-place aliases decided.

    draft     the working form: kernels bound to values, in execution order
    scalars   one-element constants written into expressions
    inline    a map's expression put into the kernels that read it
    epilogue  a map run on each value a kernel produces, before it is stored
    layouts   which values lie channels-last
    alias     copies that become views: strided windows, and operands of a Concat written in place
    fuse      the order in which these are applied

May know: `ir`, `ops`. Must not know: devices, tiles, C.
"""

from compiler.fuse.fuse import fuse

__all__ = ["fuse"]
