"""Measurements that a change of the compiler leaves true: of kernels whose source is the same as before.

A record names the compiler that generated the code, and has the code's digest. By the same compiler it counts as it is;
by another one it does where the source that is generated now has the same digest. Then it is carried over: added once
more as of the present compiler, so that the next compilation need not generate anything to know. A record without a
digest, or of a source that was changed since, is a hint alone (`compiler.tuning.nearby`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from compiler.contract import generator
from compiler.ir.machine import Record, Setting
from compiler.ir.target import Target
from compiler.knowledge.kinds import AGAIN, KERNEL, SOURCE, STATE
from compiler.knowledge.known import identity
from compiler.knowledge.records import Records

Sources = Mapping[str, Callable[[], str]]
"""By tile (`known.identity`) what gives the digest of a kernel's source; legal tiles alone."""


def carried(records: Records, workload: str, sources: Sources, target: Target, setting: Setting) -> list[Record]:
    """Records of a workload by earlier compilers that still hold, as records of the present one.

    Of several that were measured alike the last one; none where there is one of the present compiler.
    """
    found: dict[tuple[object, ...], Record] = {}
    for record in records.find(KERNEL, target, workload=workload):
        if setting.is_like(record):
            # Of a record that was edited they may be anything, which a key cannot be.
            how = repr((record.variant.get(STATE), record.variant.get(AGAIN)))
            place = identity(record.variant), record.threads, how
            if record.compiler == generator() or place not in found or found[place].compiler != generator():
                found[place] = record
    return [
        present(record)
        for (tile, *_), record in found.items()
        if record.compiler != generator() and tile in sources and holds(record, sources[str(tile)])
    ]


def holds(record: Record, source: Callable[[], str]) -> bool:
    """Whether what a record measured is what would be generated now, whose digest `source` gives."""
    if record.compiler == generator():
        return True
    measured = record.variant.get(SOURCE)
    return isinstance(measured, str) and bool(measured) and measured == source()


def present(record: Record) -> Record:
    """A record that holds, as one of the present compiler."""
    return replace(record, compiler=generator())


def together(sources: Iterable[str]) -> str:
    """The digest of several kernels' sources; empty where one of them is not known."""
    each = [*sources]
    return hashlib.sha256(repr(each).encode()).hexdigest()[:16] if all(each) else ""
