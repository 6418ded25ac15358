"""Tuning records to and from files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright import download as downloads
from tilewright.download import Progress
from tilewright.errors import UsageError
from tilewright.files import whole
from tilewright.http import Http
from tilewright.package import CHUNK

FILTERS = (
    *("kind", "operator", "workload", "target", "hardware", "device", "job", "model"),
    *("threads", "since", "until", "imported"),
)
PAGE = 500
FORMATS = ("json", "csv", "parquet")


def checked(where: Mapping[str, str]) -> dict[str, str]:
    """Filters that the server knows. Raises `UsageError`: one that is misspelt would leave everything."""
    if unknown := sorted(set(where) - set(FILTERS)):
        raise UsageError(f"records have no filter {unknown[0]!r}", fix=f"use any of {', '.join(FILTERS)}")
    return dict(where)


def to_file(http: Http, target: Path, format: str, where: Mapping[str, str]) -> Path:
    """All that `where` leaves. Raises `UsageError` for another format."""
    if format not in FORMATS:
        raise UsageError(f"records are not written as {format!r}", fix=f"use one of {', '.join(FORMATS)}")
    known = checked(where)
    if format == "json":
        with whole(target) as file:
            between = '{"records": [\n'
            for said in http.pages("/tuning-records", "records", known, 0, PAGE):
                file.write(f"{between}{json.dumps(said)}".encode())
                between = ",\n"
            file.write((between if between[0] == "{" else "\n").encode() + b"]}\n")
        return target
    return downloads.save(http, "/tuning-records", target, {**known, "format": format})


def source(http: Http, record: str) -> str:
    """C of what a record measured."""
    response = http.request("GET", f"/tuning-records/{record}/source")
    if response.headers.get("Content-Type", "").startswith("application/json"):
        return str(http.parsed(response)["source"])
    return response.text


def bring(http: Http, path: Path, progress: Progress) -> dict[str, Any]:
    """Import a file. Raises `UsageError` when it cannot be read."""
    try:
        size = path.stat().st_size
        with path.open("rb"):
            pass
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", fix="give a file that was exported") from error

    def read() -> Iterator[bytes]:
        here = 0
        with path.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
                here += len(piece)
                progress(here, size)

    headers = {"Content-Type": "application/x-ndjson", "Content-Length": str(size)}
    # What came in before a connection broke is passed over the second time.
    return http.json("POST", "/tuning-records/import", headers=headers, content=read, repeat=True)
