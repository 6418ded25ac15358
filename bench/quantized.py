"""Races in int8: a model quantised once, which all engines run, and a look at what each of them computes from bytes."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.cache import Cache
from bench.engines.catalogue import OURS, driver
from bench.engines.driver import Arrays
from bench.engines.process import Engine
from bench.race.race import Contender
from bench.subject import Subject
from compiler.contract import QuantizeOptions
from compiler.quantize import quantize
from compiler.quantize.compilation import is_quantised
from compiler.quantize.network import open_network
from tilewright.arrays import write_npz

INT8 = "int8"
SAMPLES = 3
"""Drawn ones: a race asks for times, not for accuracy."""
LAYERS_S = 0.05
"""For which an engine runs while it notes its layers."""

FROM_BYTES = {
    OURS: {"ConvInteger", "ConvTransposeInteger", "MatMulInteger"},
    "onnxruntime": {
        *("QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger"),
        *("MatMulIntegerToFloat", "DynamicQuantizeMatMul"),
    },
}
"""By engine, the operators that multiply bytes. OpenVINO ends the name of a primitive with its precision."""
FROM_FLOATS = {
    OURS: {"Conv", "MatMul", "Gemm"},
    "onnxruntime": {"Conv", "FusedConv", "NhwcFusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm"},
}
OPENVINO_PRODUCTS = ("Convolution", "FullyConnected", "MatMul")


def quantised(one: Subject, cache: Cache) -> Subject:
    """A model as QDQ model, from the cache where it is there; one that is quantised already as it is.

    Raises what `compiler.quantize.quantize` raises.
    """
    if is_quantised(open_network(one.file)[1]):
        return one
    digest = hashlib.sha256(one.file.read_bytes()).hexdigest()[:16]
    file = cache.place("quantised") / f"{one.name}-{digest}.onnx"
    if not file.exists():
        shapes = one.options.get("inputs", {})
        draft = file.with_suffix(".part")
        quantize(one.file, draft, QuantizeOptions(derived_samples=SAMPLES, inputs=shapes))
        draft.replace(file)
    return replace(one, file=file)


def products_in_bytes(contenders: Sequence[Contender], inputs: Arrays, threads: int) -> dict[str, tuple[int, int]]:
    """By engine that reports its layers: products computed from bytes, and all products. Raises `EngineFailed`."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-layers-") as name:
        given = Path(name) / "inputs.npz"
        write_npz(given, inputs)
        for one in contenders:
            if driver(one.engine).layers is not None:
                log = Path(name) / f"{one.engine}.log"
                with Engine(one.engine, one.file, given, None, log, threads, INT8) as engine:
                    kinds = [is_from_bytes(one.engine, layer.kind) for layer in engine.layers(LAYERS_S)]
                found[one.engine] = (kinds.count(True), len(kinds) - kinds.count(None))
    return found


def is_from_bytes(engine: str, kind: str) -> bool | None:
    """Whether a layer of a kind, as its engine names it, is a product of bytes; None where it is no product."""
    if engine == "openvino":
        operator, _, primitive = kind.partition(" ")
        return primitive.endswith("_I8") if operator in OPENVINO_PRODUCTS else None
    operators = set(kind.split("+"))
    if operators & FROM_BYTES.get(engine, set()):
        return True
    return False if operators & FROM_FLOATS.get(engine, set()) else None
