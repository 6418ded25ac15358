"""Compression after training: a model in fp32 and samples in, the same model with weights of a form out.

layers    which weights are changed, and the reason of each that stays as it is
forms     which weights become zero together, the masks of a form, and the words for it
gram      what the samples say of a layer's inputs: X X^T
prune     one-shot pruning by magnitude, by magnitude and inputs, and with an update of what remains
factors   matrices as products of two of low rank, by what samples say
parts     the nodes that a layer becomes: one, or two of low rank
evaluate  the model's outputs with some weights replaced
times     what each layer takes at each level
compress  all of it: the new model and its report
report    what became of layers, outputs and the whole
"""

from compiler.compress.compress import compress
from compiler.compress.report import CompressReport

__all__ = ["CompressReport", "compress"]
