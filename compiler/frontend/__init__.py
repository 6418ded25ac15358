"""Bytes to Graph: reads untrusted models; knows nouns and operators, no other stage.

wire       the protobuf is whole and of bounded size, from its bytes alone
read       a file or bytes, safely
decode     ModelProto to Model (model): versions, names, attributes; order: sorted, acyclic, live; tensors: data, mapped
bind       symbolic dimensions get numbers
infer      the walk that types, folds and inlines (functions, special, fold), each call first checked (schema)
           and upgraded (legalise, opsets), into the Graph (assembly)
"""

from compiler.frontend.limits import Limits
from compiler.frontend.load import Loaded, load

__all__ = ["Limits", "Loaded", "load"]
