"""Operators that do not take every axis of their first input open, and why; the page of operators has the same list."""

from __future__ import annotations

from collections.abc import Mapping

WEIGHTS = "an axis whose size the shape of weights says"
TABLES = "an axis along which its constants are made when compiling"
NOT_OPENED: Mapping[str, str] = {
    "CausalConvWithState": WEIGHTS,
    "Col2Im": "blocks and positions, which become the axes of an image",
    "ConstantOfShape": "how many axes the result has",
    "DFT": TABLES,
    "DeformConv": "rows and columns of the image, between which it interpolates",
    "DepthToSpace": "channels, of which blocks are made",
    "DequantizeLinear": "the axis of scales that are constants, or of blocks",
    "Det": "any axis",
    "GRU": WEIGHTS,
    "GridSample": "rows and columns of the image, between which it interpolates",
    "GroupNormalization": "channels, of which groups are made",
    "LSTM": WEIGHTS,
    "LinearAttention": "the axis that holds all heads",
    "MaxUnpool": "rows and columns",
    "NonMaxSuppression": "the four numbers of a box",
    "QuantizeLinear": "the axis of scales that are constants, or of blocks",
    "RNN": WEIGHTS,
    "RoiAlign": "rows and columns of the image, between which it interpolates",
    "RotaryEmbedding": "the axis that holds all heads",
    "STFT": TABLES,
    "Split": "the axis that forms before opset 18 divide into equal parts",
    "SplitToSequence": "the axis that it splits, as the number of parts would be open",
    "TensorScatter": "batches, and the axis that is written to",
    "TfIdfVectorizer": "any axis",
}
"""By operator: which axis has to be bound."""
NEVER_FED: Mapping[str, str] = {
    "Col2Im": "image_shape",
    "MaxUnpool": "output_shape",
    "MelWeightMatrix": "num_mel_bins",
    "STFT": "frame_step",
}
"""By operator: the input without a value that its cases of onnx's conformance suite are refused for."""

WITHOUT_CASES = {
    "ByteTable",
    "Cast",
    "CastLike",
    "ConvInteger",
    "ConvTransposeInteger",
    "CumSum",
    "DynamicQuantizeLSTM",
    "Forest",
    "GlobalLpPool",
    "MaxOfRegions",
    "OneHot",
    "PadBeyond",
    "PadOutside",
    "QLinearConv",
    "RandomBits",
    "SamplesOfRegions",
    "SelectBoxes",
    "Toeplitz",
}
"""Operators here of which the suite has no case of one node whose first input can be open."""
MADE_OF_OTHERS = {
    "AffineGrid",
    "Attention",
    "Bernoulli",
    "CausalConvWithState",
    "CenterCropPad",
    "ConstantOfShape",
    "DFT",
    "DeformConv",
    "Det",
    "Dropout",
    "If",
    "LinearAttention",
    "MaxUnpool",
    "NegativeLogLikelihoodLoss",
    "OptionalGetElement",
    "Range",
    "RotaryEmbedding",
    "STFT",
    "Scan",
    "Scatter",
    "Shape",
    "Size",
    "SoftmaxCrossEntropyLoss",
    "SplitToSequence",
    "SwiGLU",
    "TfIdfVectorizer",
    "Upsample",
}
"""Operators with such cases that the front end replaces by others. Reading the suite takes long: hence the lists."""
