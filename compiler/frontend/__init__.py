"""Bytes to Graph: reads untrusted models; knows nouns and operators, no other stage.

wire       the protobuf is whole and of bounded size, from its bytes alone
read       a file or bytes, safely
decode     ModelProto to Model (model): versions, names, attributes; order: sorted, acyclic, live; tensors: data, mapped
bind       symbolic dimensions get numbers
infer      the walk that types, folds, inlines (functions, special, fold) and unrolls (unroll), each call first checked
           (schema) and upgraded (legalise, opsets), into the Graph (assembly)
regions    branches, and (whiles) loops, as nodes with bodies, where data decide or a loop is long

`load` ends at the first thing wrong with a model; `survey` finds all of them, and corrects what options it can
(correct). `outline` shows a file as it is.
"""

from compiler.frontend.left_open import bind_what_is_open
from compiler.frontend.limits import Limits
from compiler.frontend.load import Loaded, load
from compiler.frontend.outline import outline
from compiler.frontend.survey import Survey, Use, survey

__all__ = ["Limits", "Loaded", "Survey", "Use", "bind_what_is_open", "load", "outline", "survey"]
