"""Artifacts for accelerators, run here by LiteRT: one inference, and the estimate that stands in for a benchmark."""

from __future__ import annotations

import hashlib
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.accelerate.interpreter import ArtifactError, Model
from compiler.contract import BenchmarkOptions
from compiler.contract.devices import HOST
from compiler.errors import ArtifactUnusable, OptionsError, ToolchainMissing
from compiler.measure.npz import read_fitting, write_outputs
from compiler.pack.pack import digest_of


def opened(artifact: str, path: Path) -> Model:
    """The model in an artifact. Raises ToolchainMissing without LiteRT, ArtifactUnusable for a damaged one."""
    try:
        return Model(path)
    except ArtifactError as reason:
        raise ToolchainMissing(f"{artifact} cannot be run: {reason.message}", fix=reason.fix) from reason
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError, RuntimeError) as reason:
        raise ArtifactUnusable(
            f"{artifact} cannot be loaded: {reason!s:.200}", fix="compile the model again"
        ) from reason


def infer(artifact: Path, inputs: Path, outputs: Path) -> dict[str, Any]:
    """Runs it once, as `compiler.runner.infer`; `seconds` are those of LiteRT here, not of the accelerator."""
    begin = time.perf_counter()
    with opened("the artifact", artifact) as model:
        load_s = time.perf_counter() - begin
        _, arrays = read_fitting(inputs, [model.inputs])
        begin = time.perf_counter()
        try:
            found = dict(zip((spec.name for spec in model.outputs), model.run_flat(arrays), strict=True))
        except ArtifactError as reason:
            raise OptionsError(reason.message, fix=reason.fix) from reason
        seconds = time.perf_counter() - begin
        write_outputs(outputs, found)
        described = {
            spec.name: {
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "sha256": hashlib.sha256(np.ascontiguousarray(found[spec.name]).tobytes()).hexdigest(),
            }
            for spec in model.outputs
        }
    return {"seconds": seconds, "load_s": load_s, "lanes": 1, "outputs": described}


def estimated(artifact: str, path: Path, options: BenchmarkOptions) -> tuple[dict[str, Any], str]:
    """What a report of a benchmark says of an artifact of which nothing can be timed here, and a notice of that.

    It has the fields of `compiler.runner.benchmark`, and `estimated`: by whom; so has its `stream`, of a pipeline.
    `runs` is 0, `samples_s` is empty, and every figure of time but those of loading and of the first run, by LiteRT
    here, is the estimate of the compiler.
    """
    if options.dims or options.binding not in (None, 1):
        raise OptionsError(f"artifact {artifact} has one binding, without sizes", fix="leave binding and dims out")
    begin = time.perf_counter()
    with opened(f"artifact {artifact}", path) as model:
        load_s = time.perf_counter() - begin
        begin = time.perf_counter()
        model.run(model.random_inputs(options.seed))
        first_run_s = time.perf_counter() - begin
        run = model.bench()
        rows = model.profile() if options.profile else None
        ports = {
            side: [{"name": one.name, "dtype": one.dtype, "shape": list(one.shape)} for one in getattr(model, side)]
            for side in ("inputs", "outputs")
        }
        manifest = model.manifest
        target, clock_hz = manifest["target"], model.clock_hz
        cpu_s = "measured where it was compiled" if model.manifest.get("beside") == HOST else "modelled"
    seconds = float(run["median"])
    times = dict.fromkeys(("median_s", "mean_s", "min_s", "p10_s", "p90_s", "p99_s", "compute_s"), seconds)
    described = {
        "artifact": artifact,
        "sha256": digest_of(path),
        "target": target,
        "hardware": "",
        "lanes": 1,
        "dims": {},
        "estimated": run["by"],
        "load": {"first_s": load_s, "warm_s": load_s},
        "first_run_s": first_run_s,
        "memory": {"load_bytes": None, "run_bytes": None},
        "samples_s": [],
        "rounds": [],
        "round_median_s": [],
        "runs": 0,
        **times,
        "stream": _streamed(manifest["stream"], str(run["by"])) if "stream" in manifest else None,
        "copy_in_s": 0.0,
        "copy_out_s": 0.0,
        "kernels": None if rows is None else [_row(at, row, clock_hz, seconds) for at, row in enumerate(rows)],
        **ports,
    }
    said = (
        f"artifact {artifact}: {1e3 * seconds:.3f} ms on {target} are {run['by']}, and {cpu_s} for the CPU beside it; "
        "nothing was measured here, so it is not compared with other artifacts"
    )
    return described, said


def _streamed(described: Mapping[str, Any], by: str) -> dict[str, Any] | None:
    """As `compiler.measure.streaming.streams` of what is estimated; None where how often a frame ends is not known."""
    period_s = described["period_s"]
    if not period_s:
        return None
    used = sorted({one["device"] for one in described["parts"]})
    return {
        "estimated": by,
        "per_second": 1 / period_s,
        "period_s": period_s,
        "predicted_period_s": period_s,
        "periods_s": [],
        "devices": [{**one, "busy": busy} for one, busy in zip(described["devices"], described["busy"], strict=True)],
        "parts": [
            {"device": one["device"], "kernels": len(one["calls"]), "seconds": one["seconds"], "share": 1.0}
            for one in described["parts"]
        ],
        "bubble": max(0.0, 1 - sum(described["busy"][at] for at in used) / len(used)),
    }


def _row(at: int, row: dict[str, Any], clock_hz: float, whole_s: float) -> dict[str, Any]:
    seconds = row["cpu_s"] + (row["cycles"] / clock_hz if row["cycles"] else 0.0)
    return {
        "call": at,
        "family": row["operator"],
        "tile": row["on"],
        "seconds": seconds,
        "share": seconds / whole_s if whole_s else 0.0,
        "nodes": [row["node"][:120]] if row["node"] else [],
    }
