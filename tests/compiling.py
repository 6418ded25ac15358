"""The common short call of the compiler: a file, an artifact, options, and little else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, CompileReport
from compiler.pipeline import compile_model
from compiler.request import Host, Request


def compile_file(
    model: Path,
    artifact: Path,
    options: CompileOptions,
    records: Sequence[Mapping[str, Any]] = (),
    *,
    data: Mapping[str, Path] | None = None,
    samples: Mapping[str, Path] | None = None,
    **host: Any,
) -> CompileReport:
    """The artifact and its report; `host` are fields of `Host`."""
    return compile_model(Request(model, artifact, options, data, samples or {}), Host(records, **host))
