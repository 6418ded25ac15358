"""Records that come with the compiler, measured on real devices: what a build begins from where nothing else is known.

They lie in `compiler/records`, one JSON object a line, as `Record.to_json` gives it. Of hardware that is here they
count like any others. A target that is cross-compiled adopts those of the hardware of its name that most is known of:
own records before shipped ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from compiler.ir.machine import Record, Setting, plausible
from compiler.ir.target import Target
from compiler.knowledge.kinds import FROM, KERNEL

FOLDER = Path(str(files("compiler"))) / "records"


@lru_cache(maxsize=4)
def shipped(folder: Path = FOLDER) -> tuple[Record, ...]:
    """All of them, by file name and line."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return tuple(plausible(map(json.loads, lines)))


def starting_points(
    known: Sequence[Record], target: Target, setting: Setting, folder: Path = FOLDER
) -> Sequence[Record]:
    """What a search or a choice for a target begins from.

    These are records shipped, then those known, which count before them.
    """
    ours = [record for record in shipped(folder) if record.target == target.name]
    if target.is_here:
        return [*ours, *known]
    adopted = _adopted(known, target, setting) or _adopted(ours, target, setting)
    return [*ours, *adopted, *known]


def _adopted(records: Sequence[Record], target: Target, setting: Setting) -> Sequence[Record]:
    """Kernels measured elsewhere with constants in the same place, as if it had been here; C compilers may differ."""
    fit = [
        record
        for record in records
        if (record.kind, record.target) == (KERNEL.name, target.name)
        and record.hardware != target.hardware
        and record.variant.get("weights") == setting.weights
    ]
    if not fit:
        return []
    ((hardware, _),) = Counter(record.hardware for record in fit).most_common(1)
    return [_moved(record, target, setting) for record in fit if record.hardware == hardware]


def _moved(record: Record, target: Target, setting: Setting) -> Record:
    origin = {
        "hardware": record.hardware,
        "toolchain": record.variant.get("toolchain"),
    }
    variant = {**record.variant, **setting.to_json(), FROM: origin}
    return replace(record, hardware=target.hardware, variant=variant)
