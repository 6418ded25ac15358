"""Operators of other domains than ai.onnx that are known, each as an Expansion over ai.onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.frontend.expansions import brevitas, contrib, ml, training
from compiler.frontend.expansions.fused import rms_norm
from compiler.frontend.expansions.grams import tf_idf
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Call, Expansion, quoted
from compiler.ops.operator import Unsupported

DOMAINS: Mapping[str, Mapping[str, Callable[[Site], Expansion]]] = {
    ml.DOMAIN: ml.ML,
    training.DOMAIN: training.TRAINING,
    contrib.DOMAIN: contrib.CONTRIB,
    **dict.fromkeys(brevitas.DOMAINS, brevitas.QUANTISERS),
    "": {"SimplifiedLayerNormalization": rms_norm, "TfIdfVectorizer": tf_idf},
}
"""By domain and name."""

REFUSED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    contrib.DOMAIN: contrib.REFUSED,
    ml.DOMAIN: ml.REFUSED,
    "": {
        "ImageDecoder": (
            "an image file is decoded by no program",
            "decode it before the run, as numpy.asarray(PIL.Image.open(file).convert('RGB')) does, and feed the pixels",
        )
    },
}
"""By domain and name, the reason and the fix."""


def rule_of(call: Call) -> Callable[[Site], Expansion] | None:
    """What stands for a call of another domain; None where it is not known."""
    return DOMAINS.get(call.domain, {}).get(call.op)


def why_not(call: Call) -> Unsupported:
    """What is said of a call that has no rule."""
    if (said := REFUSED.get(call.domain, {}).get(call.op)) is not None:
        return Unsupported(*said)
    if not call.domain:
        fix = "replace it by supported operators; GET /operators lists them"
        return Unsupported("the operator is not supported", fix)
    if call.domain in DOMAINS:
        fix = "export with ai.onnx operators or local functions; GET /operators lists what is supported"
        return Unsupported(f"the operator is not known in domain {quoted(call.domain)}", fix)
    return Unsupported(
        f"operators of domain {quoted(call.domain)} are not known", "export with ai.onnx operators or local functions"
    )
