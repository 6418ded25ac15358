from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.contract import MOST_SAMPLES
from compiler.errors import InputsError
from compiler.prove.samples import read_samples
from tests.parse import parse_graph

GRAPH = parse_graph("""graph(%0: i64[3] "ids", %1: f32[2, 2] "x", %2: bf16[2] "b") -> (%1)""")
IDS = np.array([1, 2, 3])
X = np.full((2, 2), 0.5, np.float32)
B = np.array([1, -2], ml_dtypes.bfloat16)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_samples_have_the_arrays_of_their_inputs_in_the_order_given(tmp_path: Path) -> None:
    one = saved(tmp_path / "one.npz", ids=IDS, x=X, b=B.view(np.uint16))
    two = saved(tmp_path / "two.npz", ids=IDS.astype(np.int32), x=X.astype(np.float64), b=B.view(np.uint16))
    first, second = read_samples({"the first": one, "the second": two}, GRAPH)
    assert (first.name, second.name) == ("the first", "the second")
    assert first.digest == hashlib.sha256(one.read_bytes()).hexdigest() != second.digest
    for sample in (first, second):
        assert [sample.arrays[value].dtype for value in GRAPH.inputs] == [np.int64, np.float32, ml_dtypes.bfloat16]
        assert [sample.arrays[value].tolist() for value in GRAPH.inputs] == [IDS.tolist(), X.tolist(), [1, -2]]


def test_samples_of_small_types_are_their_codes(tmp_path: Path) -> None:
    graph = parse_graph("""graph(%0: i4[3] "x") -> (%0)""")
    (sample,) = read_samples({"one": saved(tmp_path / "one.npz", x=np.array([15, 7, 8], np.uint8))}, graph)
    assert sample.arrays[0].dtype == ml_dtypes.int4
    assert sample.arrays[0].astype(np.int64).tolist() == [-1, 7, -8]


def test_no_samples_are_none() -> None:
    assert read_samples({}, GRAPH) == ()


def test_every_input_of_every_sample_that_does_not_fit_is_named_with_what_was_expected_and_found(
    tmp_path: Path,
) -> None:
    files = {
        "right": saved(tmp_path / "0.npz", ids=IDS, x=X, b=B.view(np.uint16)),
        "one": saved(tmp_path / "1.npz", ids=IDS.astype(np.float32), x=X[:1], b=B.view(np.uint16)),
        "two": saved(tmp_path / "2.npz", id=IDS, x=X, b=B.view(np.uint16)),
    }
    with pytest.raises(InputsError, match="sample 'one', sample 'two' cannot be used") as caught:
        read_samples(files, GRAPH)
    assert [refusal.reason for refusal in caught.value.refusals] == [
        "sample 'one': input 'ids' is float32, not int64",
        "sample 'one': input 'x' has shape [1, 2], not [2, 2]",
        "sample 'two': input 'id' is unknown",
        "sample 'two': input 'ids' is missing",
    ]
    assert caught.value.refusals[0].fix == ".astype('int64')"
    assert caught.value.refusals[3].fix == "add it as int64[3]"


def test_what_is_no_archive_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputsError, match=r"sample 'x\.npz' cannot be used: the inputs are not a whole \.npz archive"):
        read_samples({"x.npz": tmp_path / "x.npz"}, GRAPH)


def test_more_samples_than_are_taken_are_refused_before_they_are_read(tmp_path: Path) -> None:
    files = {str(at): tmp_path / "none" for at in range(MOST_SAMPLES + 1)}
    with pytest.raises(InputsError, match="17 samples are given, and at most 16 are accepted"):
        read_samples(files, GRAPH)
