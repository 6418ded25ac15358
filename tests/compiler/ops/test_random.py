from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.evaluate import evaluate
from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported
from compiler.ops.random import OPERATORS

BITS = OPERATORS[0]


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 in Python's integers, as the paper writes it."""
    (left0, right0, left1, right1), (k0, k1) = counter, key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * left0, 0xCD9E8D57 * left1
        left0, right0, left1, right1 = (
            (product1 >> 32) ^ right0 ^ k0,
            product1 % 2**32,
            (product0 >> 32) ^ right1 ^ k1,
            product0 % 2**32,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return left0, right0, left1, right1


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_of_these_tests_gives_the_known_answers_of_Random123(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    assert philox(counter, key) == words


@pytest.mark.parametrize(
    ("state", "attrs"),
    [
        ((0, 0), {}),
        ((-1, 2**40 - 1), {"stream": 2**32 - 1}),
        ((0x299F31D0A4093822, 3), {"stream": 5}),
        ((9, 1), {"stream": 1, "key": 0x123456789ABCDEF}),
    ],
)
@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 5), (0,)])
def test_every_element_is_the_first_word_of_its_counter(
    state: tuple[int, int], attrs: dict[str, int], shape: tuple[int, ...]
) -> None:
    node = Node("RandomBits", (0,), (1,), {"shape": shape, **attrs})
    types = (TensorType(DType.I64, (2,)),)
    inferred = BITS.infer(node, types)
    assert inferred == (TensorType(DType.U32, shape),)
    kernel = BITS.define(node, types, inferred)
    assert isinstance(kernel, Kernel)
    kernel.verify()
    given = np.array(state, np.int64)
    key = attrs.get("key", state[0]) % 2**64
    stream, run = attrs.get("stream", 0), state[1] % 2**32
    count = int(np.prod(shape))
    want = [philox((place, 0, stream, run), (key % 2**32, key >> 32))[0] for place in range(count)]
    for (found,) in (BITS.reference(node, (given,)), evaluate(kernel, [given])):
        assert found.dtype == np.uint32
        np.testing.assert_array_equal(found, np.array(want, np.uint32).reshape(shape))


def test_another_state_is_refused() -> None:
    with pytest.raises(Unsupported, match="its state is"):
        BITS.infer(Node("RandomBits", (0,), (1,), {"shape": (2,)}), (TensorType(DType.I64, (3,)),))
