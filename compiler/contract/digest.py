"""The digest of a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def bundle_digest(model: str, data: Mapping[str, str]) -> str:
    """The digest (hex) of a model: of one ONNX file its own SHA-256, of a bundle that of its canonical manifest.

    The manifest is the JSON text `{"data": {path: sha256, ...}, "model": sha256}` with sorted keys and no spaces, in UTF-8.
    """
    if not data:
        return model
    manifest = json.dumps({"model": model, "data": dict(data)}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(manifest.encode()).hexdigest()
