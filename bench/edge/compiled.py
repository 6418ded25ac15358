"""Networks compiled for Ethos-U by Vela, legalised where they have to be: cycles, what is left to the CPU, noise."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from compiler.accelerate.compile import compile_for_accelerator

CHIPS = ("npu:ethos-u55-128", "npu:ethos-u65-256", "npu:ethos-u85-256")
SAMPLES = 8
_COLUMNS = " | ".join(f"{chip[4:]} kilocycles (left to the CPU)" for chip in CHIPS)
HEAD = f"| network | rules applied | signal to noise dB | {_COLUMNS} |\n|---|---|---|{'---|' * len(CHIPS)}"


def row(label: str, model: Callable[[], bytes], chips: Sequence[str] = CHIPS) -> str:
    """A network's line of the table; samples are drawn, and it is judged on four of those that it is calibrated on."""
    cells: list[str] = []
    rules, noise = 0, ""
    with tempfile.TemporaryDirectory(prefix="tilewright-edge-") as name:
        file, samples = Path(name) / "model.onnx", Path(name) / "samples.npz"
        file.write_bytes(model())
        (given,) = onnx.load(file).graph.input
        shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
        drawn = np.random.default_rng(0).standard_normal((SAMPLES, *shape)).astype(np.float32)
        np.savez(samples, **{given.name: drawn})  # type: ignore[arg-type]
        for chip in chips:
            made = compile_for_accelerator(file, file.with_suffix(".tw"), chip, {"samples": samples})
            placed = made["placement"]
            rules = sum((placed["legalised"] or {"rules": {}})["rules"].values())
            noise = ", ".join(f"{one['snr_db']:.1f}" for one in made["agreement"] or ())
            cells.append(f"{placed['totals']['cycles'] / 1e3:.0f} ({placed['totals']['on_cpu']})")
    return f"| {label} | {rules} | {noise} | {' | '.join(cells)} |"
