"""The race at the end of a compilation, in its process and on its device; it never makes a job fail."""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING

from compiler.contract import CompileOptions, CompileReport, kinds
from compiler.contract.races import PEERS, PeerReport
from worker.race import peers
from worker.race.race import SECONDS, race

if TYPE_CHECKING:
    from worker.attempt.child import Spec

LEFT_S = 10.0
"""Of the job's time, that a race leaves."""
LEAST_S = 3.0


def raced(spec: Spec, options: CompileOptions, made: CompileReport, began: float) -> tuple[PeerReport, ...]:
    """What came of the option `compare`: a report of each peer.

    began  when the job began, of `time.monotonic`

    Of a peer that the job names, and that is not raced, a report says why. Without names a target that is not this
    machine's CPU is no reason to say anything.
    """
    wanted = peers.installed() if options.compare is None else tuple(dict.fromkeys(options.compare))
    if not wanted:
        return ()
    seconds = min(SECONDS, spec.limits.wall_s - LEFT_S - (time.monotonic() - began))
    why = _elsewhere(spec, options, made)
    if why and options.compare is None:
        return ()
    if why := why or _impossible(spec, options, seconds):
        return tuple(PeerReport(peer, f"{PEERS[peer]}: {why}") for peer in wanted)
    return _race(spec, wanted, seconds)


def _elsewhere(spec: Spec, options: CompileOptions, made: CompileReport) -> str:
    """Why there is no race of such a target here; empty where there may be one."""
    if kinds.of(options.compiled_for) is not kinds.CPU:
        return "artifacts for CPUs alone are raced"
    if options.devices:
        return "artifacts for several devices are not raced"
    if not spec.measures or not made.latency_s:
        return "the target is not the machine that compiled, so there was no race"
    return ""


def _impossible(spec: Spec, options: CompileOptions, seconds: float) -> str:
    """Why this model cannot be raced, or not now; empty where it can."""
    if len(spec.inputs) > 1:
        return "models with external data are not raced in a job: `tilewright race` does it"
    if options.carry:
        return "the artifact keeps states from run to run, which the model as it came does not"
    if options.constant_inputs:
        return "the artifact has constants in place of inputs"
    if spec.stop_requested():
        return "the job was asked to finish before a race"
    return "" if seconds >= LEAST_S else "no time of the job was left for a race"


def _race(spec: Spec, wanted: tuple[str, ...], seconds: float) -> tuple[PeerReport, ...]:
    (_, model), *_ = spec.inputs
    sample = spec.samples[0][1] if spec.samples else None
    try:
        return race(model, spec.output, wanted, seconds=seconds, sample=sample, stop_requested=spec.stop_requested)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return tuple(PeerReport(peer, f"{PEERS[peer]}: no race, because of {type(error).__name__}") for peer in wanted)
