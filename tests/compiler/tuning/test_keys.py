"""The keys of records: a record made by an earlier release must be found by a later one."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from compiler.encodings.encoding import DENSE, Encoding
from compiler.encodings.int24 import INT24
from compiler.errors import VerifyError
from compiler.ir.machine import Workload
from compiler.ir.parsing.parse import parse_workload
from compiler.tuning.tune import workload_key

PRODUCT = """workload
  kernel MatMul(in x: f32[4, 64], in w: f32[64, 32]; out y: f32[4, 32])
    for m:4, n:32
      y[m, n] = sum<f32> k:64 . mul(x[m, k], w[k, n])
  input b0: f32[4, 64] plain
  {} b0: f32[64, 32] plain
  output b0: f32[4, 32] plain"""
HALVES = """workload
  kernel Relu(in x: f32[2, 3]; out y: f32[2, 3])
    for i:2, j:3
      y[i, j] = max(x[i, j], 0.0:f32)
  input b0: f32[2, 3] as f16 plain
  output b0: f32[2, 3] <1 0> strides (1, 2)"""
ROUTINE = """workload
  routine TopK topk(in x: f32[2, 8]; out y: f32[2, 1]) {axis=1 k=1 largest=True}
  input b0: f32[2, 8] plain
  output b0: f32[2, 1] plain"""

KEYS = (
    (PRODUCT.format("input"), "67866b5e79b74397ebdebeff", "d8912b9e90623f952b01654a"),
    (PRODUCT.format("constant"), "441a56234205b704287d6551", "c74fcd1f1f901185f33431cd"),
    (PRODUCT.format("narrow constant"), "d26302229d85f166af675fd2", "871dc50a0eedaa02e6341bb7"),
    (HALVES, "f7b2abd178fd7943c2371f12", "c17a8bd85aa574c5dd9e3e19"),
    (ROUTINE, "403f05c2f2e38d8189a70cae", "68d778034b6c7d00c775dc98"),
)
"""Workloads with their keys and digests of what Python prints of them, from which keys of stages and plans are made."""


def printed(workload: Workload) -> str:
    return hashlib.sha256(repr(workload).encode()).hexdigest()[:24]


@pytest.mark.parametrize(("text", "key", "digest"), KEYS)
def test_keys_stay_what_they_were(text: str, key: str, digest: str) -> None:
    workload = parse_workload(text)
    workload.verify()
    assert (workload_key(workload), printed(workload)) == (key, digest)
    assert parse_workload(str(workload)) == workload


def test_what_a_constant_may_be_kept_in_is_part_of_the_key() -> None:
    plain = parse_workload(PRODUCT.format("constant"))
    kept = [
        (DENSE,),
        (DENSE, INT24),
        (DENSE, Encoding("bitmask", "sparse")),
        (DENSE, INT24, Encoding("codebook", "coded")),
    ]
    keys = {workload_key(replace(plain, encodings=((DENSE,), one))) for one in kept}
    assert len(keys) == len(kept)
    assert workload_key(plain) in keys


def test_encodings_that_no_tensor_can_have_are_refused() -> None:
    plain = parse_workload(PRODUCT.format("input"))
    with pytest.raises(VerifyError, match="an input that is no constant is encoded as int24"):
        replace(plain, encodings=((DENSE,), (DENSE, INT24))).verify()
    with pytest.raises(VerifyError, match="an input may not be kept dense"):
        replace(plain, constant=(False, True), encodings=((DENSE,), (INT24,))).verify()
    with pytest.raises(VerifyError, match="2 flags for 2 inputs"):
        replace(plain, encodings=((DENSE,),)).verify()
