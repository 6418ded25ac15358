"""Legalisation: a model for an accelerator that has few operators, out of what it has.

profile    which operators an accelerator has, under which constraints, and what they cost: TOML files in profiles/
legalise   load, rewrite until the error is as wanted, place, write
program    the graph while it is rewritten: when a rewrite leads to the accelerator
rules/     what replaces what, exact and approximate
curves     functions of one variable; sums: the best sums of ReLUs; forms: by sigmoids; each with a proved bound
ranges     what values may hold
errors     bounds propagated to the outputs
placement  which node runs where, and estimates of time
write      a graph as an ONNX file

Nothing here knows a kind of device: an accelerator is what its profile says.
"""

from compiler.legalise.legalise import Legalised, legalise, legalised_graph
from compiler.legalise.profile import Profile, open_profile

__all__ = ["Legalised", "Profile", "legalise", "legalised_graph", "open_profile"]
