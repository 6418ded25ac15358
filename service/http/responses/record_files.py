"""Tuning records as CSV and as Parquet, written while they are read.

Both have the columns `COLUMNS`; a variant is JSON text. In CSV (RFC 4180, UTF-8) a text that a spreadsheet would take
for a formula is preceded by an apostrophe. No column holds a name out of a model: operators, workloads and descriptions
are the compiler's words; but a record that was imported may hold any.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from service.db.models import TuningRecord
from service.db.plain import dumps
from service.http.schemas.common import utc
from service.jobs.tuning.records import FIELDS

COLUMNS = ("id", "job", "model", "imported", "created_at", *FIELDS)

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet would compute."""

Batches = Iterable[Sequence[TuningRecord]]


def csv_file(batches: Batches) -> Iterator[bytes]:
    """A header and one line for each record; times are RFC 3339, UTC."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for batch in batches:
        writer.writerows([_cell(value) for value in _row(record).values()] for record in batch)
        yield _drain(text)
    yield _drain(text)


def parquet_file(batches: Batches) -> Iterator[bytes]:
    """One row group for each batch, compressed with zstd."""
    import pyarrow as pa  # 50 MB of memory that only the process that writes such a file needs
    import pyarrow.parquet as pq

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), dict: pa.string()}
    special = {"imported": pa.bool_(), "created_at": pa.timestamp("us", tz="UTC")}
    fields = [pa.field(name, special.get(name) or kinds[FIELDS.get(name, str)]) for name in COLUMNS]
    schema = pa.schema(fields)
    sink = io.BytesIO()
    with pq.ParquetWriter(pa.PythonFile(_Forward(sink), mode="w"), schema, compression="zstd") as writer:
        for batch in batches:
            rows = [{**_row(record), "created_at": utc(record.created_at)} for record in batch]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


class _Forward(io.RawIOBase):
    """A file to append to, whose bytes are taken away while it is written."""

    def __init__(self, sink: io.BytesIO) -> None:
        super().__init__()
        self._sink = sink
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        count = self._sink.write(data)
        self._at += count
        return count

    def tell(self) -> int:
        return self._at


def _row(record: TuningRecord) -> Mapping[str, Any]:
    return {
        "id": str(record.id),
        "job": None if record.job_id is None else str(record.job_id),
        "model": record.model_digest,
        "imported": record.imported,
        "created_at": utc(record.created_at).isoformat(),
        **{name: getattr(record, name) for name in FIELDS},
        "variant": dumps(record.variant),
    }


def _cell(value: object) -> object:
    match value:
        case bool():
            return "true" if value else "false"
        case str() if value.startswith(FORMULA):
            return f"'{value}"
    return value


def _drain(text: io.StringIO) -> bytes:
    data = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return data


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
