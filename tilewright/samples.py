"""Samples: inputs that go to the server with a model."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.arrays import write_npz
from tilewright.errors import UsageError

NPZ = "application/x-npz"


def form(body: Mapping[str, Any], samples: Sequence[str | Path | Mapping[str, Any]]) -> dict[str, Any]:
    """A request with samples, as httpx takes it: a form instead of the JSON `body`.

    Raises `UsageError` for a file that cannot be read, or arrays that are none.
    """
    beside = {"tag" if name == "tags" else name: body[name] for name in body if name not in ("model", "options")}
    query = {**beside, **({"fresh": "true" if body["fresh"] else "false"} if "fresh" in body else {})}
    return {
        "params": query,
        "data": {"digest": body["model"], "options": json.dumps(body["options"])},
        "files": _files(samples),
    }


def beside(body: Mapping[str, Any], samples: Sequence[str | Path | Mapping[str, Any]]) -> dict[str, Any]:
    """A request for a benchmark with samples, as httpx takes it: a form that holds the JSON `body` as a part.

    Raises what `form` raises.
    """
    return {"data": {"benchmark": json.dumps(body)}, "files": _files(samples)}


def _files(samples: Sequence[str | Path | Mapping[str, Any]]) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("samples", (_name(sample, at), _bytes(sample), NPZ)) for at, sample in enumerate(samples)]


def _name(sample: str | Path | Mapping[str, Any], at: int) -> str:
    """The file's own name; numbered, since several folders may hold files of one name."""
    return f"{at + 1}.npz" if isinstance(sample, Mapping) else f"{at + 1} {Path(sample).name}"


def _bytes(sample: str | Path | Mapping[str, Any]) -> bytes:
    if isinstance(sample, Mapping):
        written = io.BytesIO()
        write_npz(written, sample)
        return written.getvalue()
    try:
        return Path(sample).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {sample}: {error.strerror}", fix="name an .npz file of inputs") from error
