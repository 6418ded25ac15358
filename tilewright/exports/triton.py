"""A model repository of Triton Inference Server, for its Python backend.

NAME/config.pbtxt    inputs and outputs, as triton-inference-server/common's model_config.proto has them
NAME/1/model.py      what runs the artifact
NAME/1/model.tw      the artifact
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError
from tilewright.files import whole
from tilewright.loading import read_manifest

TYPES: Mapping[str, str] = {
    "bool": "TYPE_BOOL",
    **{f"uint{bits}": f"TYPE_UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"TYPE_INT{bits}" for bits in (8, 16, 32, 64)},
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
}
"""Of Triton, by the artifact's dtype: those that the Python backend gives as arrays of numpy."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def triton_repository(artifact: Path, folder: Path, name: str = "") -> Path:
    """Writes the model below `folder`, which is given to `tritonserver --model-repository`; its own folder.

    name  under which it is served; that of the artifact's file by default

    Raises `UsageError` for a dtype that the Python backend does not take, a name that is no folder's, a model that is
    there already, and a folder that cannot be written.
    """
    called = name or artifact.stem
    if not _NAME.fullmatch(called):
        raise UsageError(f"{called!r} cannot be the name of a model", fix="letters, digits, _ . and -: --name NAME")
    text = config_of(read_manifest(artifact), called)
    here = folder / called
    try:
        (here / "1").mkdir(parents=True)
        (here / "config.pbtxt").write_text(text, encoding="utf-8")
        source = files("tilewright.exports") / "triton_model.py.txt"  # Triton's process imports it, this one never
        (here / "1" / "model.py").write_text(source.read_text("utf-8"), encoding="utf-8")
        with artifact.open("rb") as packed, whole(here / "1" / "model.tw") as target:
            shutil.copyfileobj(packed, target)
    except OSError as error:
        raise UsageError(f"{here} cannot be written: {error.strerror}", fix="name another folder") from error
    return here


def config_of(manifest: Mapping[str, Any], name: str) -> str:
    """config.pbtxt of an artifact. Axes that may have several sizes are -1. Raises `UsageError`."""
    kind = "KIND_GPU" if str(manifest["target"]).startswith("cuda") else "KIND_CPU"
    lines = [f"name: {_quoted(name)}", 'backend: "python"', "max_batch_size: 0"]
    for field in ("inputs", "outputs"):
        for at, one in enumerate(manifest[field]):
            if one["dtype"] not in TYPES:
                raise UsageError(
                    f"{field[:-1]} {one['name']!r} is of {one['dtype']}, of which Triton's backend has no arrays",
                    fix="cast it to float32 in the model",
                )
            dims = _dims(manifest, field, at)
            shaped = f"dims: [ {', '.join(map(str, dims))} ]" if dims else "dims: [ 1 ] reshape: { shape: [ ] }"
            lines.append(f"{field[:-1]} {{ name: {_quoted(one['name'])} data_type: {TYPES[one['dtype']]} {shaped} }}")
    lines.append(f"instance_group {{ count: 1 kind: {kind} }}")
    return "\n".join(lines) + "\n"


def _dims(manifest: Mapping[str, Any], field: str, at: int) -> Sequence[int]:
    """The sizes of a tensor's axes; -1 where bindings differ, or one leaves the axis open."""
    bindings = manifest.get("bindings") or [manifest]
    each = []
    for binding in bindings:
        shape = binding[field][at]["shape"]
        is_open = (binding.get("open") or {}).get(field) or [[None] * len(one["shape"]) for one in binding[field]]
        each.append([-1 if number is not None else size for size, number in zip(shape, is_open[at], strict=True)])
    return [sizes[0] if len({*sizes}) == 1 else -1 for sizes in zip(*each, strict=True)]


def _quoted(text: str) -> str:
    """As protobuf's text format has strings: bytes that are not printable ASCII in octal."""
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{plain}"'
