from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from compiler.contract.preflight import ModelAnswer
from compiler.encodings import FINDINGS, REPORTED
from compiler.encodings.finding import Finding
from tests.compiler.encodings.test_encoded_keys import anywhere, clustered, floats


def low_rank() -> np.ndarray:
    random = np.random.default_rng(5)
    return (random.normal(size=(200, 4)) @ random.normal(size=(4, 300))).astype(np.float32)


def found(kind: type[Finding]) -> list[Finding]:
    return [one for one in map(kind.of, (anywhere(), clustered(), low_rank(), floats())) if one is not None]


@pytest.mark.parametrize("kind", FINDINGS, ids=lambda kind: kind.key)
def test_preflight_tells_of_a_finding_what_the_api_describes(kind: type[Finding]) -> None:
    (schema,) = get_args(ModelAnswer.model_fields[kind.key].annotation)
    assert found(kind)
    for one in found(kind):
        assert {"name", "shape", *one.to_json()} == {*schema.model_fields}
        schema(name="w", shape=[1, 2], **one.to_json())


def test_reports_tell_of_findings_under_titles_of_their_own() -> None:
    assert {*REPORTED} < {*FINDINGS}
    assert len({kind.title for kind in REPORTED}) == len(REPORTED)
    for kind in REPORTED:
        assert kind.note(True) != kind.note(False)
        assert not kind.is_used_by("contraction")
        assert kind.notices(["contraction"]) == []
