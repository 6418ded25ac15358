"""Measurements as they are shipped: one file for each product, sorted, the latest of each kind alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Plain = Mapping[str, Any]
"""A record as JSON."""


def read(file: Path) -> list[dict[str, Any]]:
    """All whole lines; a process that was killed may have left half of one."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def shipped(records: Sequence[Plain]) -> list[Plain]:
    """The last measurement of each thing that was measured, in an order that does not depend on when."""
    latest = {_what(record): record for record in records}
    return [latest[key] for key in sorted(latest)]


def write(file: Path, records: Sequence[Plain]) -> None:
    """One JSON object a line, keys in order; the file is whole at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.part")
    draft.write_text("".join(json.dumps(record, sort_keys=True) + "\n" for record in records))
    draft.replace(file)


def file_name(product: str) -> str:
    """`NVIDIA H200` as `nvidia_h200.jsonl`."""
    return re.sub(r"[^a-z0-9]+", "_", product.lower()).strip("_") + ".jsonl"


def _what(record: Plain) -> str:
    """What was measured, where and how; not what came of it."""
    names = ("kind", "operator", "target", "hardware", "workload", "variant", "threads", "compiler")
    return json.dumps([record.get(name) for name in names], sort_keys=True)
