"""A model of one text as a model of many texts of unequal lengths, whose tokens are one axis.

roles      which axes of the model's tensors count tokens or texts, found by loading it at other sizes
segments   where each text begins and ends, as values of the packed graph
packing    the packed graph: most nodes as they are, attention and pooling within each text
alone      the same texts one by one, by the unpacked model: the reference
load       options to both
"""

from compiler.frontend.ragged.load import Texts, load_texts, suggested_ragged

__all__ = ["Texts", "load_texts", "suggested_ragged"]
