"""Tuning records as they go over the wire."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import TuningRecord
from service.http.schemas.common import utc
from service.jobs.tuning.exchange import Count, Totals
from service.jobs.tuning.records import to_json

RECORD_EXAMPLE: dict[str, Any] = {
    "id": "019aa1f0-9d11-7c52-8e0a-0f6d2b7a4c10",
    "job": "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11",
    "model": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "imported": False,
    "created_at": "2026-11-21T04:00:03.000Z",
    "kind": "kernel",
    "workload": "1f0c9a52be7d4e83a6b1c0d2",
    "operator": "Conv+Relu",
    "description": "Conv+Relu: f32[1, 64, 56, 56], f32[64, 64, 1, 1], f32[64] -> f32[1, 64, 56, 56]",
    "target": "cpu:x86-64-v4",
    "hardware": "cpu:x86-64-v4/62047a4b3376a6f5",
    "variant": {
        "algorithm": "contraction",
        "levels": {"block": {"m": 392, "n": 64}, "register": {"m": 14, "n": 32}, "vector": {"n": 16}},
        "scopes": {"t0": "register"},
        "weights": "cache",
        "toolchain": "gcc (Debian 14.2.0-19) 14.2.0",
        "source": "c0d1f25ab80e6f37",
    },
    "threads": 1,
    "seconds": 0.000213,
    "p10": 0.00021,
    "p90": 0.000225,
    "samples": 31,
    "compiler": "0.1.0+5f0c9b21d8e7a643",
}

WORKLOAD_EXAMPLE = "workload\n  input f32[1, 64, 56, 56] strides (200704, 3136, 56, 1)\n  ..."

COUNT_EXAMPLE: dict[str, Any] = {"imported": 1100, "there_already": 2, "refused": 1}
REFUSAL_EXAMPLE: dict[str, Any] = {"line": 17, "reason": "tuning record field 'seconds' is not a (finite) float: None"}


class RecordOut(BaseModel):
    """One measurement on a real device; `seconds` is the median."""

    model_config = ConfigDict(json_schema_extra={"example": RECORD_EXAMPLE})

    id: uuid.UUID
    job: uuid.UUID | None = Field(description="Null once the job was removed, and for a record that was imported.")
    model: str | None = Field(description="Digest of the model that was compiled; null for a record that was imported.")
    imported: bool = Field(description="Measured by another installation.")
    created_at: datetime = Field(description="When it was measured.")
    kind: str = Field(description="`kernel`, `machine`, `handover`, `stage`, `search`, `plan`, `cores` or `stream`.")
    workload: str = Field(description="Key of what was measured: equal for equal kernels on equal buffers.")
    operator: str = Field(description="The operators that the kernel carries out, joined by `+`.")
    description: str
    target: str
    hardware: str = Field(
        description="Fingerprint of the machine that measured: figures are comparable where it is equal."
    )
    variant: dict[str, Any] = Field(description="How it was carried out: algorithm, tile, where temporaries live.")
    threads: int
    seconds: float
    p10: float
    p90: float
    samples: int
    compiler: str = Field(description="Version of the compiler, with a digest of what generates its code.")

    @classmethod
    def of(cls, record: TuningRecord) -> Self:
        """From a row."""
        return cls(**_plain(record))


class RecordPage(BaseModel):
    """Tuning records, newest first."""

    model_config = ConfigDict(json_schema_extra={"example": {"records": [RECORD_EXAMPLE], "next_cursor": None}})

    records: list[RecordOut]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class RecordDetail(RecordOut):
    """One measurement, with what was measured."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                **RECORD_EXAMPLE,
                "workload_text": WORKLOAD_EXAMPLE,
                "links": {"self": f"/tuning-records/{RECORD_EXAMPLE['id']}"},
            }
        }
    )

    workload_text: str | None = Field(
        description="The kernel and its buffers, as the compiler writes and reads them; null if it was never recorded."
    )
    links: dict[str, str] = Field(description="`source` is there if the workload's text is.")

    @classmethod
    def of_record(cls, record: TuningRecord, text: str | None) -> Self:
        """From a row and the text of its workload."""
        here = f"/tuning-records/{record.id}"
        links = {"self": here} | ({} if text is None else {"source": f"{here}/source"})
        if record.job_id is not None:
            links["job"] = f"/jobs/{record.job_id}"
        return cls(**_plain(record), workload_text=text, links=links)


class CountOut(BaseModel):
    """What became of the lines of one type."""

    model_config = ConfigDict(json_schema_extra={"example": COUNT_EXAMPLE})

    imported: int
    there_already: int
    refused: int

    @classmethod
    def of(cls, count: Count) -> Self:
        """From the counts of an import."""
        return cls(**vars(count))


class RefusalOut(BaseModel):
    """A line that was not taken."""

    model_config = ConfigDict(json_schema_extra={"example": REFUSAL_EXAMPLE})

    line: int = Field(description="Its number; the header is 1.")
    reason: str


class ImportOut(BaseModel):
    """What an import did."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "lines": 1204,
                "records": COUNT_EXAMPLE,
                "workloads": {"imported": 100, "there_already": 0, "refused": 0},
                "refusals": [REFUSAL_EXAMPLE],
            }
        }
    )

    lines: int = Field(description="How many were read, with the header.")
    records: CountOut
    workloads: CountOut
    refusals: list[RefusalOut] = Field(description="The first of the lines that were refused.")

    @classmethod
    def of(cls, totals: Totals) -> Self:
        """From the counts of an import."""
        return cls(
            lines=totals.lines,
            records=CountOut.of(totals.records),
            workloads=CountOut.of(totals.workloads),
            refusals=[RefusalOut(line=line, reason=reason) for line, reason in totals.refusals],
        )


def _plain(record: TuningRecord) -> dict[str, Any]:
    """The fields of `RecordOut`."""
    return {
        "id": record.id,
        "job": record.job_id,
        "model": record.model_digest,
        "imported": record.imported,
        "created_at": utc(record.created_at),
        **to_json(record),
    }
