"""What records say of kernels: by tile on one lane, by tile on several, and the best of each; and of hand-overs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.ir.machine import Record, Setting
from compiler.ir.target import Target
from compiler.knowledge.kinds import AGAIN, HANDOVER, KERNEL, PAIR
from compiler.knowledge.records import Records


def known_handovers(records: Sequence[Record], target: Target, pair: tuple[int, int] | None = None) -> list[Record]:
    """Those of hand-overs between a pair of cores, or, without one, of the machine's."""
    wanted = [*pair] if pair else None
    return [one for one in Records.of(records).find(HANDOVER, target) if one.variant.get(PAIR) == wanted]


def known_alone(records: Sequence[Record], target: Target, setting: Setting) -> Mapping[tuple[str, str], Record]:
    """By workload and tile (`identity`) the record on one lane that counts.

    That is the last one, of those that were measured again if any was.
    """
    known: dict[tuple[str, str], Record] = {}
    for record in Records.of(records).find(KERNEL, target, setting=setting):
        place = record.workload, identity(record.variant)
        if record.threads == 1 and (
            record.variant.get(AGAIN) or place not in known or not known[place].variant.get(AGAIN)
        ):
            known[place] = record
    return known


def known_shared(
    records: Sequence[Record], target: Target, setting: Setting, state: str
) -> Mapping[tuple[str, str, int], Record]:
    """By workload, tile (`identity`) and lanes the last record of a kernel on several lanes in a state of the cores."""
    return {
        (record.workload, identity(record.variant), record.threads): record
        for record in Records.of(records).find(KERNEL, target, setting=setting, state=state)
        if record.threads > 1
    }


def measured_seconds(records: Sequence[Record], target: Target, setting: Setting) -> Mapping[str, float]:
    """By workload key, the seconds of the best tile that was measured on this target in this setting."""
    best: dict[str, float] = {}
    for (key, _), record in known_alone(records, target, setting).items():
        best[key] = min(record.seconds, best.get(key, math.inf))
    return best


def identity(variant: Mapping[str, Any]) -> str:
    """What tells one tile from another, whatever the order in which a database returns the keys."""
    return json.dumps([variant.get(part) for part in ("algorithm", "levels", "scopes")], sort_keys=True)
