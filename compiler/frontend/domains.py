"""Operators of other domains than ai.onnx that are known, each as an Expansion over ai.onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.frontend import brevitas, contrib, ml, training
from compiler.frontend.fused import rms_norm
from compiler.frontend.model import Call, Expansion
from compiler.frontend.site import Site

DOMAINS: Mapping[str, Mapping[str, Callable[[Site], Expansion]]] = {
    ml.DOMAIN: ml.ML,
    training.DOMAIN: training.TRAINING,
    contrib.DOMAIN: contrib.CONTRIB,
    **dict.fromkeys(brevitas.DOMAINS, brevitas.QUANTISERS),
    "": {"SimplifiedLayerNormalization": rms_norm},
}
"""By domain and name."""


def rule_of(call: Call) -> Callable[[Site], Expansion] | None:
    """What stands for a call of another domain; None where it is not known."""
    return DOMAINS.get(call.domain, {}).get(call.op)
