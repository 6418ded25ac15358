"""`POST /quantizations`: a model in floating point becomes one in 8-bit integers."""

from __future__ import annotations

from compiler.contract import job_kinds
from service.http.requests.model_changes import changing

router = changing(
    job_kinds.QUANTIZATION,
    "/quantizations",
    name="quantize_model",
    summary="Quantise a model",
    description="""Send a model, or name one that was uploaded, as for `POST /compile`; the answer is a job.

    Parts `samples` are .npz archives of real inputs, each of one sample or of several along a first axis; without any,
    random inputs are drawn, and the report says so. Once the job has SUCCEEDED, what it made is a model of the caller
    like one that was uploaded: `links.quantized` is its file, an ONNX model with QuantizeLinear and DequantizeLinear,
    and the report has its digest, a row for each layer, and the signal to noise of each output.
    """,
    example={"snr_db": 30},
)
