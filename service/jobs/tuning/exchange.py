"""Carry tuning records from one installation to another, as JSON lines.

The first line says what follows: `{"format": "tilewright-records", "version": 1, ...}`. Then come lines
`{"type": "workload", "workload": key, "text": ...}` and `{"type": "record", ...}`, a record as in
`service.jobs.tuning.records` with `created_at`, the time of its measurement in seconds since 1970. No line holds a
model, a job, an owner or generated code.

What is read in is believed as little as what a worker says. A record can only say how long a variant took: a
compilation uses it where it proposes that very variant of that very workload itself, so that a record that lies can
make a model slow and never wrong. A workload's text is parsed in a sealed process alone, when the source of a record is
asked for.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from compiler.contract import COMPILER_VERSION
from compiler.errors import InternalError
from service.db import records, workloads
from service.db.engine import Database
from service.db.models import TuningRecord
from service.db.plain import dumps, storable
from service.db.records import Wanted
from service.errors import BadRequest
from service.jobs.accounts import audit, quotas
from service.jobs.tuning.records import FIELDS, LONGEST, MAX_TEXT_BYTES, MAX_VARIANT_BYTES, everything, to_json, to_row

FORMAT, VERSION = "tilewright-records", 1

MAX_LINE_BYTES = 1 << 20
BATCH = 1000
"""Lines that are kept in one transaction."""
TEXTS_PER_READ = 100
TOLD_REFUSALS = 20
AHEAD_S = 24 * 3600.0
"""How far a measurement may lie in the future, by clocks that differ. One further ahead would be the newest for
ever."""

SAME = ("kind", "workload", "target", "hardware", "threads", "seconds", "samples", "created_at")
"""Records that share these and the variant are one."""


class Refused(Exception):
    """Why a line is not taken."""


@dataclass
class Count:
    """What became of the lines of one type."""

    imported: int = 0
    there_already: int = 0
    refused: int = 0


@dataclass
class Totals:
    """What an import has done so far. `refusals` are the first: number of the line (the header is 1) and reason."""

    lines: int = 0
    records: Count = field(default_factory=Count)
    workloads: Count = field(default_factory=Count)
    refusals: list[tuple[int, str]] = field(default_factory=list)


def export(db: Database, owner: uuid.UUID) -> Iterator[bytes]:
    """Everything the owner has measured or imported, in pieces of several lines. Raises `DatabaseUnavailable`."""
    piece = _line({"format": FORMAT, "version": VERSION, "compiler": COMPILER_VERSION})
    after: str | None = ""
    while after is not None:
        with db.read() as session:
            texts = workloads.page(session, owner, after, TEXTS_PER_READ)
        lines = (_line({"type": "workload", "workload": row.workload, "text": row.text}) for row in texts)
        yield piece + b"".join(lines)
        piece, after = b"", texts[-1].workload if texts else None
    for batch in everything(db, owner, Wanted(), most=None):
        yield b"".join(
            _line({"type": "record", **to_json(record), "created_at": record.created_at}) for record in batch
        )


@dataclass
class Import:
    """One import: `take` its lines in order, `BATCH` or fewer at a time; `totals` says what has become of them.

    A batch is kept as a whole or, when the database fails, not at all; the batches before it stay, and a repeated
    import passes over what is there. A line that is refused keeps no other line out.
    """

    db: Database
    owner: uuid.UUID
    totals: Totals = field(default_factory=Totals)

    def take(self, lines: Sequence[bytes]) -> None:
        """Keep what the lines hold. Raises `BadRequest` unless the very first is a header that is understood."""
        number = self.totals.lines
        if number == 0 and lines:
            _check_header(lines[0])
            lines, number = lines[1:], 1
        batch = _Batch(self.db, self.owner)
        done = Totals(lines=number + len(lines))
        for at, line in enumerate(lines, start=number + 1):
            if line.strip():
                _read(line, at, batch, done)
        batch.keep(done)
        self._add(done)

    def _add(self, done: Totals) -> None:
        """After the commit, so that the counts are of what is there."""
        self.totals.lines = done.lines
        for name in ("records", "workloads"):
            mine, new = getattr(self.totals, name), getattr(done, name)
            mine.imported += new.imported
            mine.there_already += new.there_already
            mine.refused += new.refused
        self.totals.refusals = (self.totals.refusals + done.refusals)[:TOLD_REFUSALS]


@dataclass
class _Batch:
    """Rows that passed every check, to be written together."""

    db: Database
    owner: uuid.UUID
    rows: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def keep(self, done: Totals) -> None:
        """Write what is not there yet; count both."""
        if not self.rows and not self.texts:
            return
        with self.db.write() as session:
            quotas.opened(session, self.owner)  # two imports of the same at once: the later sees the earlier's rows
            there = workloads.present(session, self.owner, list(self.texts))
            workloads.keep_all(session, self.owner, {key: self.texts[key] for key in self.texts.keys() - there})
            known = {_identity(row) for row in records.measured_at(session, self.owner, self._times())}
            new: dict[tuple[object, ...], dict[str, Any]] = {}
            for row in self.rows:
                if (identity := _identity(row)) not in known:
                    new.setdefault(identity, row)
            records.add(session, list(new.values()))
            audit.note(session, "import", "/tuning-records")
        done.workloads.imported, done.workloads.there_already = len(self.texts) - len(there), len(there)
        done.records.imported, done.records.there_already = len(new), len(self.rows) - len(new)

    def _times(self) -> list[float]:
        return sorted({row["created_at"] for row in self.rows})


def _check_header(line: bytes) -> None:
    fix = "send what GET /tuning-records/export answers, whole"
    try:
        header = orjson.loads(line)
    except ValueError as error:
        raise BadRequest("the first line is not JSON", fix=fix) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadRequest(f"the first line does not say that its format is {FORMAT!r}", fix=fix)
    if header.get("version") != VERSION:
        raise BadRequest(
            f"version {header.get('version')!r:.40} of the format is not understood",
            fix=f"export it with a release that writes version {VERSION}",
        )


def _read(line: bytes, at: int, batch: _Batch, done: Totals) -> None:
    """One line into the batch, or its refusal into the counts."""
    count = done.records
    try:
        plain = _object(line)
        match plain.get("type"):
            case "workload":
                count = done.workloads
                _workload(plain, batch)
            case "record":
                batch.rows.append(_record(plain, batch.owner))
            case other:
                raise Refused(f"its type is {other!r:.40}, neither 'workload' nor 'record'")
    except (Refused, RecursionError) as refused:
        count.refused += 1
        if len(done.refusals) < TOLD_REFUSALS:
            reason = str(refused) if isinstance(refused, Refused) else "it is nested too deeply"
            done.refusals.append((at, reason))


def _object(line: bytes) -> Mapping[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise Refused(f"it is longer than {MAX_LINE_BYTES} bytes")
    try:
        plain = orjson.loads(line)
    except ValueError as error:
        raise Refused(f"it is not JSON: {error}"[:200]) from error
    if not isinstance(plain, dict):
        raise Refused("it is not a JSON object")
    return plain


def _workload(plain: Mapping[str, Any], batch: _Batch) -> None:
    key, text = plain.get("workload"), plain.get("text")
    if not isinstance(key, str) or not 0 < len(key.encode()) <= LONGEST["workload"]:
        raise Refused(f"field 'workload' is not a text of 1 to {LONGEST['workload']} bytes")
    if not isinstance(text, str) or not 0 < len(text.encode()) <= MAX_TEXT_BYTES:
        raise Refused(f"field 'text' is not a text of 1 to {MAX_TEXT_BYTES} bytes")
    if storable([key, text]) != [key, text]:
        raise Refused("it holds U+0000")
    if batch.texts.setdefault(key, text) != text:
        raise Refused(f"workload {key!r:.60} has another text in a line before")


def _record(plain: Mapping[str, Any], owner: uuid.UUID) -> dict[str, Any]:
    try:
        row = to_row(plain, owner=owner, job=None, model_digest=None)
    except InternalError as error:
        raise Refused(error.message) from error
    if changed := [name for name in FIELDS if row[name] != plain[name]]:
        raise Refused(f"tuning record field {changed[0]!r} holds text that databases refuse, such as U+0000")
    if len(orjson.dumps(row["variant"])) > MAX_VARIANT_BYTES:
        raise Refused(f"tuning record field 'variant' is longer than {MAX_VARIANT_BYTES} bytes")
    measured_at = plain.get("created_at")
    if isinstance(measured_at, bool) or not isinstance(measured_at, int | float):
        raise Refused("tuning record field 'created_at' is not a number of seconds since 1970")
    if not 0 <= measured_at <= time.time() + AHEAD_S:
        raise Refused("tuning record field 'created_at' lies before 1970 or in the future")
    return {**row, "created_at": float(measured_at), "imported": True}


def _identity(row: Mapping[str, Any] | TuningRecord) -> tuple[object, ...]:
    """What distinguishes one measurement from another, in whichever order a database returns keys."""
    values = row if isinstance(row, Mapping) else {**to_json(row), "created_at": row.created_at}
    return (*(values[name] for name in SAME), orjson.dumps(values["variant"], option=orjson.OPT_SORT_KEYS))


def _line(plain: Mapping[str, Any]) -> bytes:
    return dumps(plain).encode() + b"\n"
