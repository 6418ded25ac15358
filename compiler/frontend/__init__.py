"""Bytes to Graph: reads untrusted models; knows nouns and operators, no other stage.

reading     bytes to Model: whole and of bounded size, decoded, sorted, its tensors mapped
binding     symbolic dimensions get numbers
infer       the walk that types, folds, inlines, expands and unrolls, call by call, into the Graph (assembly)
opsets      what a schema says of a call, and how an older form is upgraded
expansions  operators that are written as programs over others
control     loops, branches and sequences: unrolled, or as regions where data decide
open        axes whose size is only known while running
ragged      texts of unequal lengths on one axis of tokens

`load` ends at the first thing wrong with a model; `survey` finds all of them, and corrects what options it can
(correct). `outline` shows a file as it is.
"""

from compiler.frontend.left_open import bind_what_is_open
from compiler.frontend.load import Loaded, load
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.outline import outline
from compiler.frontend.survey import Survey, Use, survey

__all__ = ["Limits", "Loaded", "Survey", "Use", "bind_what_is_open", "load", "outline", "survey"]
