"""`tilewright preflight`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    count,
    failures,
    number_column,
    print_json,
    print_refusals,
    results,
    seconds,
    size,
    table,
)
from tilewright.cli.progress import transfer_bar
from tilewright.errors import JobFailed

if TYPE_CHECKING:
    from tilewright.wire import Preflight


def preflight(
    model: Annotated[str, typer.Argument(help="An ONNX file, a zip or folder, an address, or a digest.")],
    target: given.Target = "",
    threads: given.Threads = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    budget: given.Budget = None,
    tolerance: given.Tolerance = None,
    precision: given.Precision = None,
    devices: given.Devices = None,
    objective: given.Objective = None,
    carry: given.Carry = None,
    option: given.Others = None,
    data: given.Data = None,
    compiler: given.Compiler = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Say what would become of a compilation, without queueing one; exit status 1 when it would be refused."""
    with failures(as_json):
        wanted = given.for_targets(
            given.build_options(threads, dim, shape, budget, tolerance, precision, option, devices, objective, carry),
            [target] if target else None,
        )
        given.demand_files(model, *(data or ()))
        source = given.fetched(model)
        with connect(url, key, profile) as client, transfer_bar("upload", quiet=as_json) as progress:
            found = client.preflight(source, wanted[0], data=data or (), compiler=compiler or "", progress=progress)
        print_json(found.said) if as_json else show(found)
        if not found.ok:
            raise typer.Exit(JobFailed.exit_status)


def show(found: Preflight) -> None:
    """The answer, for people."""
    out = results()
    operators = table("operator", number_column("calls"), "verdict", "why not")
    for one in found.operators:
        domain = "" if one.get("domain") in (None, "", "ai.onnx") else f"{one['domain']}::"
        reasons = "; ".join(map(str, one.get("reasons") or ()))
        operators.add_row(f"{domain}{one.get('operator', '')}", str(one.get("count", "")), one.get("verdict"), reasons)
    if found.operators:
        out.print(operators)
    for line in _facts(found.said):
        out.print(line, markup=False)
    for notice in found.said.get("notices") or ():
        out.print(f"note: {notice}", markup=False)
    for wanted in found.said.get("samples") or ():
        reason = f"{wanted.get('operator')} {wanted.get('node')!r}: {wanted.get('reason')}. Fix: {wanted.get('fix')}"
        out.print(f"samples are wanted: {reason}", markup=False)
    if found.ok:
        out.print("ok: it would be compiled", style="bold green")
        return
    problem = found.said.get("problem") or {}
    out.print(f"refused: {problem.get('message') or 'see below'}", style="bold red", markup=False)
    print_refusals(found.refusals, out)
    if problem.get("fix"):
        out.print(f"Fix: {problem['fix']}", markup=False)
    if corrected := found.said.get("corrected"):
        out.print(f"Options that leave nothing open: {json.dumps(corrected)}", markup=False)


def _facts(said: Any) -> list[str]:
    """What it would take, as far as the server knows."""
    lines = []
    for tensor in said.get("inputs") or ():
        shape = tensor.get("shape")
        text = "of unknown rank" if shape is None else "x".join("?" if dim is None else str(dim) for dim in shape)
        ends = ["any" if end is None else f"{end:g}" for end in tensor.get("range") or ()]
        drawn = f", drawn from {ends[0]} to {ends[1]}: {tensor.get('why')}" if len(ends) == 2 else ""
        lines.append(f"input {tensor.get('name')}: {tensor.get('dtype')} {text or 'scalar'}{drawn}")
    kinds = {"carried": "carried", "suggested_states": "could be carried (--carry auto)"}
    for kind, state in ((kind, state) for key, kind in kinds.items() for state in said.get(key) or ()):
        shape = "x".join(map(str, state["shape"])) if state.get("shape") is not None else "of unknown shape"
        text = f"{state.get('dtype') or 'of unknown type'} {shape or 'scalar'}"
        lines.append(f"{kind}: {state.get('output')} is {state.get('input')} of the next inference, {text}")
    memory = said.get("memory_bytes") or {}
    known = {name: memory[name] for name in ("compile", "run") if memory.get(name) is not None}
    if known:
        lines.append("memory: " + ", ".join(f"{size(value)} to {name}" for name, value in known.items()))
    if said.get("weight_bytes"):
        lines.append(f"weights: {size(said['weight_bytes'])} in {said.get('parameters', 0):,} numbers")
    for one in said.get("sparse") or ():
        shape = "x".join(map(str, one.get("shape") or ()))
        packed = f" ({one.get('columns')} columns in {one['packed']})" if one.get("packed") else ""
        lines.append(f"  {one.get('name')} {shape}: {100 * one.get('share', 0):.1f} % zeros, {one.get('form')}{packed}")
    for one in said.get("low_rank") or ():
        lines.append(f"  {one.get('name')} {'x'.join(map(str, one.get('shape') or ()))}: of rank {one.get('rank')}")
    for one in said.get("shared") or ():
        shape, axis = "x".join(map(str, one.get("shape") or ())), one.get("axis")
        whose = "" if axis is None else f" for each index of axis {axis}"
        text = f"{one.get('values')} values{whose}, {one.get('bits')} bits each"
        lines.append(f"  {one.get('name')} {shape}: {text}, {size(one.get('saved_bytes', 0))} less than in fp32")
    for one in said.get("quantised") or ():
        shape, zeros = "x".join(map(str, one.get("shape") or ())), " and a zero point" * bool(one.get("zero_points"))
        text = f"codes of {one.get('bits')} bits, a scale{zeros} for each {one.get('block')}"
        lines.append(f"  {one.get('name')} {shape}: {text}, {size(one.get('saved_bytes', 0))} less than in fp32")
    proof = said.get("proof") or {}
    if proof.get("seconds") is not None and proof.get("bytes") is not None:
        lines.append(f"proof: about {seconds(proof['seconds'])} and {size(proof['bytes'])} for each case")
    if (said.get("gflop") or {}).get("value"):
        lines.append(f"work: {said['gflop']['value']:.3g} GFLOP a run")
    if said.get("cached"):
        lines.append(f"cached: artifact {said['cached']} is the answer already")
    return lines + _wait(said)


def _wait(said: Any) -> list[str]:
    """How long it would take."""
    lines = []
    if queue := said.get("queue"):
        ahead, workers = queue.get("position"), queue.get("workers")
        lines.append(f"queue {queue.get('name')}: {count(ahead, 'job')} before it, {count(workers, 'live worker')}")
        if notice := queue.get("notice"):
            lines.append(f"  {notice}")
    if estimate := said.get("estimate"):
        p90, jobs = seconds(estimate.get("p90_s")), estimate.get("jobs")
        basis = f"from {count(jobs, 'job')} like it" if jobs else "by its size and the tuning budget"
        lines.append(f"estimate: {seconds(estimate.get('median_s'))} (p90 {p90}, {basis})")
    return lines
