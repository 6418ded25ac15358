"""Run an artifact on the server: arrays go and come as .npz."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.arrays import read_npz, write_npz
from tilewright.errors import BrokenDownload
from tilewright.http import IDEMPOTENCY_KEY, Http
from tilewright.wire import Inference

if TYPE_CHECKING:
    from numpy.typing import NDArray

NPZ = "application/x-npz"


def start(
    http: Http, artifact: str, inputs: Mapping[str, Any], options: Mapping[str, int | None], key: str
) -> Inference:
    """Queue the run. Raises `UsageError` for inputs that are no arrays."""
    body = io.BytesIO()
    write_npz(body, inputs)
    params = {"artifact": artifact, **{name: value for name, value in options.items() if value is not None}}
    headers = {"Content-Type": NPZ, IDEMPOTENCY_KEY: key or uuid.uuid4().hex, "Content-Length": str(body.tell())}
    return Inference.from_json(
        http.json("POST", "/inferences", params=params, headers=headers, content=lambda: (body.getvalue(),))
    )


def outputs(http: Http, inference: str) -> dict[str, NDArray[Any]]:
    """What it made. Raises `BrokenDownload` when the bytes are not those announced."""
    response = http.request("GET", f"/inferences/{inference}/outputs", headers={"Accept-Encoding": "identity"})
    announced = response.headers.get("ETag", "").strip('"')
    found = hashlib.sha256(response.content).hexdigest()
    if found != announced:
        raise BrokenDownload(f"the outputs have SHA-256 {found}, the server announced {announced}", fix="fetch again")
    return read_npz(io.BytesIO(response.content))
