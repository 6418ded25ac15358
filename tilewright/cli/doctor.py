"""`tilewright doctor`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright
from tilewright.cli.output import Json, failures, print_json
from tilewright.cli.run import refusals
from tilewright.cli.timeline import require_cpu
from tilewright.loading import read_manifest

SLOWER, SHOWN = 1.5, 10
"""Times that a kernel takes longer here than where it was measured, from which on it is shown; so many are."""
CPU0 = Path("/sys/devices/system/cpu/cpu0")
CPUINFO, MODEL_KEYS = Path("/proc/cpuinfo"), ("model name", "microcode", "CPU part")


def doctor(
    artifact: Annotated[Path, typer.Argument(help="A .tw file for this machine's CPU.")],
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of which kernels' times are medians.")] = 10,
    as_json: Json = False,
) -> None:
    """Check that this machine computes an artifact right. Say what makes it slower here.

    Exit status 1: its probe gives wrong results here. With `--json`: `right`, `probe`, `machine`, `artifact`,
    `differs`, `kernels`.
    """
    with failures(as_json):
        require_cpu(artifact)
        manifest = read_manifest(artifact)
        with tilewright.load(artifact, verify=False) as model, refusals(model):
            probe = [*_probed(model)]
            kernels = model.profile(repeats=repeats)
            about = _artifact(manifest, model)
    machine = _machine()
    wrong = [one for one in probe if one["faults"]]
    found = {
        "right": None if all(one["faults"] is None for one in probe) else not wrong,
        "probe": probe,
        "machine": machine,
        "artifact": about,
        "differs": [*_differences(about, machine, kernels)],
        "kernels": kernels,
    }
    if as_json:
        print_json(found)
    else:
        for line in _lines(found):
            print(line)
    if wrong:
        raise typer.Exit(1)


def _probed(model: Any) -> Iterator[dict[str, Any]]:
    """For each binding what is wrong of its probe's results; None where it has no probe."""
    bindings = getattr(model, "bindings", (None,))
    for number, binding in enumerate(bindings, 1):
        one = model.at(number) if len(bindings) > 1 else model
        try:
            faults = [*one.self_check()]
        except (AttributeError, RuntimeError):  # of an earlier compiler, or made without a probe
            faults = None
        yield {"binding": str(binding or ""), "faults": faults}


def _artifact(manifest: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """What it was made with, and which of its programs runs here."""
    profiles = [one["target"] for one in manifest.get("profiles", ())]
    plan = model.plan
    return {
        "target": getattr(model, "target", manifest["target"]),
        **({"profiles": profiles} if profiles else {}),
        "compiled_on": manifest["hardware"],
        "compiler_version": manifest["compiler_version"],
        "plan": {"number": plan.number, "lanes": plan.lanes, "handover_s": plan.handover_s},
        "compiled_handover_s": model.plan_json().get("handover_s"),
        "lanes": model.lanes,
    }


def _machine() -> dict[str, Any]:
    """What the system says of this one; without what it does not say."""
    lines = (line.partition(":") for line in _read(CPUINFO).partition("\n\n")[0].splitlines())
    said = {key.strip(): value.strip() for key, _, value in lines}
    governor = _read(CPU0 / "cpufreq" / "scaling_governor")
    caches = [
        f"L{_read(one / 'level')} {_read(one / 'size')}"
        for one in sorted((CPU0 / "cache").glob("index*"))
        if _read(one / "type") != "Instruction"
    ]
    return {
        "processor": ", ".join(f"{key} {said[key]}" for key in MODEL_KEYS if key in said) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        **({"caches": caches} if caches else {}),
        **({"governor": governor} if governor else {}),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {
            "tilewright": version("tilewright"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
        },
    }


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _differences(
    about: Mapping[str, Any], machine: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What may make the artifact slower here than where it was compiled, in words."""
    if profiles := about.get("profiles"):
        better = profiles[: profiles.index(about["target"])]
        if better:
            yield f"this processor lacks what {', '.join(better)} needs: {about['target']} runs"
    planned = about["plan"]["lanes"]
    if machine["cores"] < planned:
        yield f"the plan is for {planned} cores, and this process may use {machine['cores']}"
    if machine.get("governor", "performance") != "performance":
        yield f"cores are clocked by the governor {machine['governor']}: the first runs may be slower"
    here, there = about["plan"]["handover_s"], about["compiled_handover_s"]
    if here and there and here > SLOWER * there:
        yield f"a hand-over between cores takes {1e9 * here:.0f} ns, and {1e9 * there:.0f} ns where it was compiled"
    measured = [one for one in kernels if one["predicted_from"] == "measured"]
    if measured:
        seconds, before = (sum(one[key] for one in measured) for key in ("seconds", "predicted_s"))
        slow = sum(one["seconds"] > SLOWER * one["predicted_s"] for one in measured)
        yield (
            f"kernels take {1e3 * seconds:.3f} ms, one lane at a time, and {1e3 * before:.3f} ms where they were "
            f"measured: {seconds / max(before, 1e-12):.2f} times as long; {slow} of {len(measured)} take over "
            f"{SLOWER:g} times as long"
        )


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The answer for people."""
    for one in found["probe"]:
        where = f" ({one['binding']})" if len(found["probe"]) > 1 else ""
        if one["faults"] is None:
            yield f"no probe{where}: compile the model again for one"
        elif one["faults"]:
            yield f"WRONG{where}: {'; '.join(one['faults'])}"
            yield "  check this machine's memory and processor; where another says the same, compile the model again"
        else:
            yield f"right{where}: the probe's outputs are in their bands"
    machine, about = found["machine"], found["artifact"]
    yield f"processor: {machine['processor']}; {machine['cores']} cores; {', '.join(machine.get('caches', ()))}"
    origin = about["compiled_on"] or "another machine"
    yield f"artifact: {about['target']}, {about['lanes']} lanes, compiled on {origin}"
    yield "versions: " + ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    yield from found["differs"]
    by_factor = sorted(found["kernels"], key=lambda one: -(one["seconds"] / max(one["predicted_s"], 1e-12)))
    slow = [one for one in by_factor if one["seconds"] > SLOWER * one["predicted_s"]][:SHOWN]
    for one in slow:
        yield (
            f"  {1e6 * one['seconds']:10.1f} us here, {1e6 * one['predicted_s']:10.1f} us {one['predicted_from']}  "
            f"{one['call']:4d} {one['family']}  {one['tile']}"
        )
