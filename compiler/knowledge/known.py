"""Records looked up: what is known of tiles, and which searches were made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.ir.machine import Record, Setting
from compiler.ir.target import Target

SEARCH = "search"
"""The kind of record that says that the kernels of a model were searched, with which budget: who has no more does not search again."""


def known_alone(records: Sequence[Record], target: Target, setting: Setting) -> Mapping[tuple[str, str], Record]:
    """By workload and tile (`identity`) the record on one lane that counts: the last one, of those that were measured again if any was."""
    known: dict[tuple[str, str], Record] = {}
    here = ("kernel", target.name, target.hardware, 1)
    for record in records:
        if (record.kind, record.target, record.hardware, record.threads) == here and setting.is_of(record):
            place = record.workload, identity(record.variant)
            if record.variant.get(AGAIN) or place not in known or not known[place].variant.get(AGAIN):
                known[place] = record
    return known


def identity(variant: Mapping[str, Any]) -> str:
    """What tells one tile from another, whatever the order in which a database returns the keys."""
    return json.dumps([variant.get(part) for part in ("algorithm", "levels", "scopes")], sort_keys=True)


def covers(searched: Mapping[str, Any], seconds: float, trials: int | None) -> bool:
    """Whether a search, by the variant of its record, had all that a budget allows."""
    had, tried = searched.get("seconds"), searched.get("trials")
    enough = tried is None or (trials is not None and isinstance(tried, int) and tried >= trials)
    return searched.get("exhausted") is True or (isinstance(had, float | int) and had >= seconds and enough)


AGAIN = "again"
"""In the variant of a record: measured once more, beside its rivals, because it led. Such a record counts before one without."""
