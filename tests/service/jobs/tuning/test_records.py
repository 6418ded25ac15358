from __future__ import annotations

import uuid
from typing import Any

import pytest

from compiler.errors import InternalError
from compiler.ir.machine import Record
from service.jobs.tuning.records import FIELDS, LONGEST, to_row


def row(plain: dict[str, Any]) -> dict[str, Any]:
    return to_row(plain, owner=uuid.uuid4(), job=uuid.uuid4(), model_digest="d")


def test_the_fields_are_those_that_the_compiler_writes(record: dict[str, Any]) -> None:
    assert set(FIELDS) == set(Record.__dataclass_fields__) == set(record)
    assert set(LONGEST) == {name for name, kind in FIELDS.items() if kind is str}
    assert Record.from_json(record).to_json() == record


def test_a_good_record_becomes_a_row(record: dict[str, Any]) -> None:
    made = row({**record, "seconds": 1, "operator": "a\0b"})
    assert made["seconds"] == 1.0
    assert made["operator"] == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", None),
        ("kind", "k" * 33),
        ("workload", "w" * 501),
        ("variant", []),
        ("threads", 1.5),
        ("threads", True),
        ("threads", -1),
        ("samples", 2**70),
        ("seconds", float("nan")),
        ("seconds", float("inf")),
        ("seconds", "1"),
        ("p10", -1e-9),
    ],
)
def test_a_bad_field_is_refused_by_name(record: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(InternalError, match=field):
        row({**record, field: value})


def test_a_missing_field_is_refused_by_name(record: dict[str, Any]) -> None:
    for name in record:
        with pytest.raises(InternalError, match=name):
            row({key: value for key, value in record.items() if key != name})
