"""Quantisation after training: a model in fp32 and samples in, a QDQ model and what it costs out.

network    the model as nodes that can be taken out, changed and put in, and the constants behind names
prepare    normalisations folded into layers, factors of Gemm into weights, and (equalise) channels scaled
layers     which nodes are computed from bytes, and the reason of each that is not
samples    values of the inputs, given or derived
calibrate  the model on the samples: ranges of tensors, what rounding the weights does
scheme     numbers to bytes
ranges     the range of a tensor from its values
tensors    which tensors are bytes, and which of them share one scale
write      QuantizeLinear and DequantizeLinear around them
search     which layers stay in floating point until the outputs are as near as is wanted
"""

from compiler.quantize.quantize import QuantizeReport, quantize

__all__ = ["QuantizeReport", "quantize"]
