"""Graph -> KernelGraph: operators become kernels, kernels are joined, layouts, views and aliases are decided.

    fuse        the order in which what follows is applied
    draft       the working form: kernels bound to values, in execution order
    scalars     one-element constants written into expressions
    inline      a map's expression put into the kernels that read it
    epilogue    a map run on each value a kernel produces, before it is stored
    layouts     which values lie channels-last, by a rule and by costs; copies that become views; transposes
    sizes       sizes that are given while running: kernels end there
    widened     conversions of outputs that are stored in fewer bytes, done by those that read them
    storage     16-bit floats in memory, where the precision of the job permits them
    attention   products and the softmax between them: floats, bytes, few queries, and masks by the places of keys
    separable   a window channel by channel and the pointwise product that alone reads it
    excitation  a mean over positions and the two small products that follow it
    normalised  a normalisation of rows and a product that reads them
    batches     whether samples are computed each by itself, and calls that run a slice of them
    long_sums   long sums in segments, which keeps rounding errors small
    joins       calls that may be one where costs say that it pays, as these make them
    regions     loops and branches: their bodies fused by themselves
    between     why what lies between two kernels must be stored
    refusal     why two kernels that touch were not made one

May import: `ir`, `ops`, `forms`. Must not import: devices, tiles, C.
"""

from compiler.fuse.fuse import STEPS, fuse

__all__ = ["STEPS", "fuse"]
