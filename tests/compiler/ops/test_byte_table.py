from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.ir.graph import Node
from compiler.ir.tensor import DType, TensorType
from compiler.ops import MODEL_OPERATORS
from compiler.ops.byte_table import OPERATORS as OWN
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import check

(TABLE,) = OWN


@pytest.mark.parametrize("result", [np.uint8, np.int8])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_each_byte_has_its_element(dtype: Any, result: Any) -> None:
    limits, random = np.iinfo(dtype), np.random.default_rng(0)
    table = random.permutation(256).astype(np.uint8).view(result)
    x = random.permutation(np.arange(limits.min, limits.max + 1)).astype(dtype).reshape(2, 128)
    (found,) = check(TABLE, [x, table], {}, rtol=0)
    ordered = dict(zip(range(limits.min, limits.max + 1), table.tolist(), strict=True))
    assert found.tolist() == [[ordered[int(one)] for one in row] for row in x]


def test_a_table_of_another_size_or_of_other_numbers_is_refused_and_so_is_a_model_with_one() -> None:
    assert TABLE.name not in MODEL_OPERATORS
    node, x = Node("ByteTable", (0, 1), (2,), {}), TensorType(DType.U8, (3,))
    wrong = (TensorType(DType.U8, (255,)), TensorType(DType.F32, (256,)))
    for kinds in [*((x, table) for table in wrong), (TensorType(DType.I32, (3,)), TensorType(DType.U8, (256,)))]:
        with pytest.raises(Unsupported, match="is no function of"):
            TABLE.infer(node, kinds)
