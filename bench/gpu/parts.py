"""The parts of the check: what is left to do of each, done until the time is over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu import child, records
from bench.gpu.calibration import calibrated
from bench.gpu.child import Ended
from bench.gpu.notebook import Deadline, Notebook, Row
from bench.gpu.subjects import KERNELS, PRECISIONS

FAMILY_S = 240.0
"""A family of kernels that has not ended by then hangs."""
COMPILING_S = 60.0
"""Seconds that compiling a network takes beside measuring, agreement with the reference included. An estimate that only
decides what is begun."""
MOST_COMPILING_S = 180.0
"""After so long beside measuring, a compilation hangs: it is a failed row, and the next network is tried."""
PLANS_S = 120.0
"""What building and running all plans of a network takes; an estimate..."""
MOST_PLANS_S = 400.0
"""... and after so long it is given up."""
CONTEST_S = 180.0
"""The same for all engines on one network, without autotuning."""
KERNEL_S = 40.0
"""What a single operator takes, compiled and beside its peers; an estimate."""
AUTOTUNED_S = 240.0
"""What autotuning adds."""
CLOSING_S = 5.0
"""Kept for ending a child and writing what it gave."""
Run = Callable[[str, Sequence[str], float], Ended]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What a part is given.

    `out` holds notebooks, models, artifacts and records; `product` and `hardware` are the GPU's name and fingerprint.
    """

    out: Path
    sources: str
    product: str
    hardware: str
    networks: Sequence[str]
    deadline: Deadline
    tell: Tell
    budget_s: float = 60.0
    autotuned: int = 2
    precisions: Sequence[str] = PRECISIONS
    run: Run = field(default=child.run)

    def notebook(self, part: str) -> Notebook:
        """Where a part of the check keeps what it finds."""
        return Notebook(self.out / f"{part}.json", self.sources)

    def seconds(self, limit: float) -> float:
        """For a child: at most `limit`, and no more than is left."""
        return max(1.0, min(limit, self.deadline.left - CLOSING_S))

    def has(self, seconds: float) -> bool:
        """Whether something that takes so long can still be done."""
        return self.deadline.left - CLOSING_S >= seconds


def tests(asked: Asked) -> bool:
    """Kernel families on the GPU beside the definition and the double. Returns whether none is left."""
    notes = asked.notebook("tests")
    names = families_of(asked, notes)
    if names is None:
        return False
    for name in names:
        if name in notes.rows:
            continue
        if not asked.has(10.0):
            return False
        limit = asked.seconds(FAMILY_S)
        verdict = asked.out / "verdict.json"
        verdict.unlink(missing_ok=True)
        ended = asked.run("tests.gpu", [name, "--json", str(verdict)], limit)
        row = verdict_of(verdict, ended, limit)
        if row is None:
            return False
        notes.put(name, row)
        asked.tell(ended.output.strip() or f"{name}: {row['failed'][0]}")
    return True


def families_of(asked: Asked, notes: Notebook) -> list[str] | None:
    """All families of kernels; None where they cannot be listed, which a row says unless only time was over."""
    ended = asked.run("tests.gpu", ["--list"], asked.seconds(FAMILY_S))
    if ended.status != 0:
        if ended.status is not None:
            notes.put("families", {"passed": False, "failed": [ended.said]})
            asked.tell(f"the families cannot be listed: {ended.said}")
        return None
    notes.rows.pop("families", None)
    names: list[str] = json.loads(ended.output.strip().splitlines()[-1])
    return names


def verdict_of(file: Path, ended: Ended, limit: float) -> Row | None:
    """What a family's process wrote, or what became of it; None where only the time of this call was over."""
    if ended.status in (0, 1) and file.exists():
        (row,) = json.loads(file.read_text())
        return dict(row)
    if ended.status is None and limit < FAMILY_S:
        return None
    became = f"did not end in {limit:.0f} s" if ended.status is None else f"ended with status {ended.status}"
    return {"passed": False, "failed": [f"{became}: {ended.said[-600:]}"]}


def tune(asked: Asked) -> bool:
    """Networks compiled with a budget for measuring; all records are written for shipping.

    Returns whether none is left.
    """
    notes = asked.notebook("tune")
    whole = True
    for network, precision in _pairs(asked):
        key = key_of(network, precision)
        before = notes.rows.get(key, {})
        if before.get("hung") or before.get("budget_s", 0.0) >= asked.budget_s:
            continue
        # What is left of the last minutes is spent on a smaller budget rather than not at all.
        budget = min(asked.budget_s, asked.deadline.left - CLOSING_S - COMPILING_S)
        if budget < min(10.0, asked.budget_s):
            whole = False
            break
        asked.tell(f"{key}: measuring for {budget:.0f} s")
        row = compiled(asked, network, precision, budget)
        if row is None:
            whole = False
            break
        notes.put(key, row)
        asked.tell(f"{key}: {told_compilation(row)}")
        whole &= "problem" in row or row["budget_s"] >= asked.budget_s
    found = [record for record in records.read(_records(asked)) if record.get("hardware") == asked.hardware]
    file = asked.out / "records" / records.file_name(asked.product)
    records.write(file, records.shipped(found))
    asked.tell(f"{len(found)} measurements are in {file}; compiler/records is where shipped ones lie")
    return whole


def compiled(
    asked: Asked,
    network: str,
    precision: str,
    budget: float,
    *,
    key: str = "",
    options: Mapping[str, Any] | None = None,
) -> Row | None:
    """The report of a compilation, or its `problem`; None where only the time of this call was over.

    A compilation that the end of a call has cut off twice counts as one that hangs. `options` are further ones of the
    job; the `key` of its row and its artifact is that of network and precision, unless another is given.
    """
    key = key or key_of(network, precision)
    artifact = artifact_of(asked, key)
    arguments = [network, precision, "--budget", f"{budget:.1f}", "--records", str(_records(asked))]
    arguments += ["--folder", str(asked.out / "models"), "--artifact", str(artifact), "--kept", str(_kernels(asked))]
    arguments += ["--options", json.dumps(dict(options or {}))] * bool(options)
    artifact.with_suffix(".json").unlink(missing_ok=True)
    most = MOST_COMPILING_S + budget
    limit = asked.seconds(most)
    ended = asked.run("bench.gpu.compiling", arguments, limit)
    if ended.status != 0:
        if ended.status is None and limit < most and not _cut_off_before(asked, key):
            return None
        return _failed_compilation(ended, limit, budget)
    report = json.loads(artifact.with_suffix(".json").read_text())
    kept = (
        "kernels",
        "latency_s",
        "records_measured",
        "records_reused",
        "phase_seconds",
        "arena_bytes",
        "weight_bytes",
    )
    worst = max((error["max_relative"] for error in report["errors"]), default=None)
    return {**{name: report[name] for name in kept}, "budget_s": budget, "worst_error": worst}


def _failed_compilation(ended: Ended, limit: float, budget: float) -> Row:
    """A row with the step at which it was, and whether it `hung`."""
    stage = ended.output.strip().splitlines()[-1] if ended.output.strip() else ""
    said = ended.said[-600:]
    if ended.status is None or ended.status < 0:
        became = f"did not end in {limit:.0f} s" if ended.status is None else f"ended with status {ended.status}"
        said = f"{became} at `{stage or 'its beginning'}`: {said}"
    return {"problem": said, "stage": stage, "hung": ended.status is None, "budget_s": budget}


def _cut_off_before(asked: Asked, key: str) -> bool:
    """Whether the end of a call has cut this off before; from now on it has."""
    notes = asked.notebook("cut_off")
    before = key in notes.rows
    notes.put(key, {})
    return before


def told_compilation(row: Row) -> str:
    """One line for people."""
    if "problem" in row:
        return f"failed: {row['problem']}"
    return (
        f"{row['kernels']} kernels, {1e3 * row['latency_s']:.3f} ms, {row['records_measured']} tiles measured, "
        f"{row['records_reused']} known"
    )


def plans(asked: Asked) -> bool:
    """Every plan of each network run beside its prediction, its outputs beside the sequential plan's.

    Returns whether none is left.
    """
    notes = asked.notebook("plans")
    whole = True
    for network, precision in _pairs(asked):
        key = key_of(network, precision)
        if key in notes.rows:
            continue
        row = _planned(asked, network, precision) if asked.has(PLANS_S) else None
        if row is None:
            whole = False
            break
        notes.put(key, row)
        asked.tell(f"{key}: {told_plans(row)}")
    if found := calibrated([plan for row in notes.rows.values() for plan in row.get("plans", ())]):
        asked.tell(str(found))
    return whole


def _planned(asked: Asked, network: str, precision: str) -> Row | None:
    """What the plans of a network reached, or its `problem`; None where only the time of this call was over."""
    file, limit = asked.out / "schedules.json", asked.seconds(MOST_PLANS_S)
    file.unlink(missing_ok=True)
    arguments = [network, precision, "--records", str(_records(asked)), "--folder", str(asked.out / "models")]
    arguments += ["--kept", str(_kernels(asked)), "--json", str(file)]
    ended = asked.run("bench.gpu.schedules", arguments, limit)
    key = key_of(network, precision)
    if ended.status is None and limit < MOST_PLANS_S and not _cut_off_before(asked, f"plans of {key}"):
        return None
    found = [{**row, "model": key} for row in json.loads(file.read_text())] if file.exists() else []
    row: Row = {"passed": bool(found) and not any(one["wrong"] or "problem" in one for one in found), "plans": found}
    if ended.status != 0:
        became = f"did not end in {limit:.0f} s" if ended.status is None else f"ended with status {ended.status}"
        row |= {"model": key, "threads": 1, "passed": False, "problem": f"{became}: {ended.said[-600:]}"}
    return row


def told_plans(row: Row) -> str:
    """One line for people."""
    plans = ", ".join(_told_plan(one) for one in row["plans"])
    return f"failed: {row['problem']}{'; ' * bool(plans)}{plans}" if "problem" in row else plans


def _told_plan(one: Row) -> str:
    timed = "not timed" if one["ms"] is None else f"{1e3 * one['ms']:.1f} µs"
    said = f"{one['scheduler']} {timed} (predicted {1e3 * one['predicted_ms']:.1f})"
    if one["wrong"]:
        said += f", WRONG by {one['differs']:.1e}" + f", in {one.get('differing')} runs" * bool(one.get("differing"))
    return said + (f", FAILED: {one['problem']}" if "problem" in one else "")


def kernels(asked: Asked) -> bool:
    """Single operators beside cuDNN and cuBLAS, through PyTorch and CuPy. Returns whether none is left."""
    notes = asked.notebook("kernels")
    for kernel in KERNELS:
        for precision in asked.precisions:
            key = key_of(kernel, precision)
            if key in notes.rows:
                continue
            made = compiled(asked, kernel, precision, asked.budget_s / 10) if asked.has(KERNEL_S) else None
            found = None if made is None else _contest(asked, kernel, precision, made, ("eager", "graph", "cublas"))
            if found is None:
                return False
            notes.put(key, found)
            asked.tell(f"{key}: {told_contest(found)}")
    return True


def bench(asked: Asked) -> bool:
    """Networks beside PyTorch's modes, cuBLAS and XLA. Returns whether none is left."""
    notes = asked.notebook("bench")
    left = asked.autotuned
    for network, precision in _pairs(asked):
        key = key_of(network, precision)
        row = notes.rows.get(key)
        autotuned = left > 0 and (row is None or "autotuned" in row.get("postponed", ()))
        if row is not None and not autotuned:
            continue
        if autotuned and not asked.has(COMPILING_S + CONTEST_S + AUTOTUNED_S):
            autotuned = False
            if row is not None:
                continue
        if not asked.has(COMPILING_S + CONTEST_S):
            return False
        left -= autotuned
        made = compiled(asked, network, precision, 0.0)
        if made is None:
            return False
        engines = ("eager", "graph", "cublas", "compiled", *["autotuned"] * autotuned, "xla")
        found = _contest(asked, network, precision, made, engines)
        if found is None:
            return False
        notes.put(key, {**found, "postponed": [] if autotuned else ["autotuned"]})
        asked.tell(f"{key}: {told_contest(found)}")
    return all(not row.get("postponed") for row in notes.rows.values())


def _contest(asked: Asked, network: str, precision: str, made: Row, engines: Sequence[str]) -> Row | None:
    file = asked.out / "contest.json"
    file.unlink(missing_ok=True)
    seconds = asked.seconds(CONTEST_S + AUTOTUNED_S * ("autotuned" in engines))
    arguments = [network, precision, "--engines", ",".join(engines), "--seconds", f"{seconds - 20:.0f}"]
    arguments += ["--folder", str(asked.out / "models"), "--json", str(file)]
    if "problem" not in made:
        arguments += ["--artifact", str(artifact_of(asked, key_of(network, precision)))]
    ended = asked.run("bench.gpu.contest", arguments, seconds)
    if ended.status is None and not asked.has(1.0):
        return None
    facts: Row = {"compilation": made}
    became = "did not end in its time" if ended.status is None else f"ended with status {ended.status}"
    if not file.exists():
        said = f"{became}: {ended.said[-600:]}"
        return {"network": network, "precision": precision, "problem": said, **facts}
    row: Row = json.loads(file.read_text())
    for name in engines if ended.status != 0 else ():
        if name not in row["ms"]:
            row["left_out"].setdefault(name, became)
    return {**row, **facts}


def told_contest(row: Row) -> str:
    """One line for people."""
    if "problem" in row:
        return f"failed: {row['problem']}"
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in row["ms"].items())
    missing = "".join(f"; no {name}: {why}" for name, why in row["left_out"].items())
    return f"{times}{missing}"


def key_of(network: str, precision: str) -> str:
    """What rows of notebooks are called."""
    return f"{network} {precision}"


def artifact_of(asked: Asked, key: str) -> Path:
    """Where the artifact of a row lies."""
    return asked.out / "artifacts" / f"{key.replace(' ', '-')}.tw"


def _kernels(asked: Asked) -> Path:
    """Where compiled kernels are kept: parts compile the same networks, and the time on a GPU is short."""
    return asked.out / "kernels"


def _records(asked: Asked) -> Path:
    return asked.out / "records.jsonl"


def _pairs(asked: Asked) -> Iterator[tuple[str, str]]:
    for network in asked.networks:
        for precision in asked.precisions:
            yield network, precision
