"""Minimising a failure: a model that cannot be compiled in, the smallest part of it that fails in the same way out.

failure   what a compilation ended with, as a signature that another one can be compared by
trials    one compilation in a process of its own, which may crash or hang
network   the file as nodes and tensors, and parts of it as files
reduce    which nodes, sizes and weights are needed: delta debugging
minimise  all of it: the smallest part and its report

Source of the algorithm: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin).
"""

from compiler.minimise.minimise import MinimiseReport, NothingFails, minimise

__all__ = ["MinimiseReport", "NothingFails", "minimise"]
