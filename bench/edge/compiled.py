"""Networks compiled for Ethos-U as they are and legalised: what runs where, hand-overs, noise, and time end to end.

Cycles are Vela's estimates. What the accelerator does not carry out are programs of this compiler, modelled on ARM
cores and measured on this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from compiler.accelerate.chips import FORMATS
from compiler.accelerate.compile import TOLERANCE, Accelerated, compile_for_accelerator
from compiler.contract import CompileOptions
from compiler.pipeline import compile_model
from compiler.request import Request

CHIPS = ("npu:ethos-u55-128", "npu:ethos-u65-256", "npu:ethos-u85-256")
SAMPLES = 8
FORMS = {"as it is": None, "legalised": TOLERANCE}
CORES = ("cpu:cortex-a53", "cpu:cortex-a76")
"""Of which the estimates tell what the CPU's parts take; beside them, this machine."""
HEAD = (
    "| network | target | form | on it / on the CPU | hand-overs | kilocycles | accelerator and calls ms "
    f"| CPU ms: A53 | A76 | here, measured | total ms (A53) | times | dB |\n|{13 * '---|'}"
)


FORMATS_HEAD = (
    "| network | target | format | on it / on the CPU | hand-overs | kilocycles | accelerator and calls ms "
    f"| CPU ms: A53 | A76 | here, measured | total ms (A53) | of TFLite's cycles | dB |\n|{13 * '---|'}"
)


def formats(label: str, model: Callable[[], bytes], chips: Sequence[str] = CHIPS) -> list[str]:
    """A network's lines of the table of formats, legalised for each; samples as in `rows`."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-edge-") as name:
        file, archives = _drawn(Path(name), model())
        for chip in chips:
            first = 0
            for format in FORMATS:
                out = file.with_suffix(".tw")
                options = CompileOptions(target=chip, format=format, tuning_budget_s=0.0)
                made = compile_for_accelerator(Request(file, out, options, samples=archives), compile_model)
                cycles = made.placement["totals"]["cycles"]
                first = first or cycles
                lines.append(
                    f"| {label} | {chip[4:]} | {format} | {_cells(made)} | {cycles / first:.3f} | {_noise(made)} |"
                )
    return lines


def _drawn(folder: Path, model: bytes) -> tuple[Path, dict[str, Path]]:
    """The model and its samples, written there."""
    file, samples = folder / "model.onnx", folder / "samples.npz"
    file.write_bytes(model)
    (given,) = onnx.load(file).graph.input
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    drawn = np.random.default_rng(0).standard_normal((SAMPLES, *shape)).astype(np.float32)
    np.savez(samples, **{given.name: drawn})  # type: ignore[arg-type]
    return file, {"samples": samples}


def rows(label: str, model: Callable[[], bytes], chips: Sequence[str] = CHIPS) -> list[str]:
    """A network's lines of the table; samples are drawn, and it is judged on four of those that it is calibrated on."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-edge-") as name:
        file, archives = _drawn(Path(name), model())
        for chip in chips:
            first: float | None = None
            for form, tolerance in FORMS.items():
                options = CompileOptions(target=chip, tuning_budget_s=0.0)
                request = Request(file, file.with_suffix(".tw"), options, samples=archives)
                made = compile_for_accelerator(request, compile_model, tolerance=tolerance)
                seconds = made.placement["totals"]["seconds"]
                first = first or seconds
                lines.append(
                    f"| {label} | {chip[4:]} | {form} | {_cells(made)} | {first / seconds:.2f} | {_noise(made)} |"
                )
    return lines


def _cells(made: Accelerated) -> str:
    placed = made.placement
    totals, cpus = placed["totals"], {one["on"]: 1e3 * one["seconds"] for one in placed["cpus"]}
    modelled = [cpus.pop(core, 0.0) for core in CORES]
    return " | ".join(
        [
            f"{totals['accelerated']} / {totals['on_cpu']}",
            str(totals["handovers"]),
            f"{totals['cycles'] / 1e3:.0f}",
            f"{1e3 * (totals['accelerator_s'] + totals['call_s']):.3f}",
            *(f"{one:.3f}" for one in (*modelled, sum(cpus.values()))),
            f"{1e3 * totals['seconds']:.3f}",
        ]
    )


def _noise(made: Accelerated) -> str:
    return ", ".join("none" if one["snr_db"] is None else f"{one['snr_db']:.1f}" for one in made.agreement)
