from __future__ import annotations

import numpy as np
import pytest

from bench.generate.codes import Coding
from bench.generate.exactness import divergence, exactness
from bench.generate.reference import reference_logits
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts

PARTS = parts(Seeded(SHAPES["tiny"]), Coding.INT8)
PROMPT = (9, 200, 31)


def greedy(count: int) -> list[int]:
    text = list(PROMPT)
    for _ in range(count):
        text.append(int(reference_logits(PARTS, text, len(text) - 1).argmax()))
    return text[len(PROMPT) :]


def test_the_references_own_text_is_equal_and_no_way_apart() -> None:
    tokens = greedy(6)
    logits = reference_logits(PARTS, [*PROMPT, *tokens[:-1]], len(PROMPT) - 1)
    found = exactness(PARTS, PROMPT, tokens, logits.astype(np.float32))
    assert (found.count, found.equal) == (6, 6)
    assert found.divergence is not None
    assert abs(found.divergence) < 1e-12
    assert found.error is not None
    assert found.error < 1e-7
    assert exactness(PARTS, PROMPT, tokens, None).divergence is None


@pytest.mark.parametrize("wrong", [0, 3, 5])
def test_tokens_are_equal_up_to_the_first_that_is_another(wrong: int) -> None:
    tokens = greedy(6)
    tokens[wrong] = (tokens[wrong] + 1) % 320
    assert exactness(PARTS, PROMPT, tokens, None).equal == wrong


def test_the_divergence_is_that_of_the_distributions() -> None:
    p, q = np.array([[0.5, 0.25, 0.25], [1.0, 0, 0]]), np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]])
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(p), -700), np.log(q) + 3
    wanted = [0.5 * np.log(2) - 0.25 * np.log(2), np.log(2)]
    np.testing.assert_allclose(divergence(*logits), wanted, rtol=1e-12)


def test_the_error_is_relative_to_the_largest_logit_of_the_reference() -> None:
    logits = reference_logits(PARTS, PROMPT, len(PROMPT) - 1)
    tokens = [int(logits.argmax())]
    shifted = logits + 0.01 * np.abs(logits).max()
    found = exactness(PARTS, PROMPT, tokens, shifted.astype(np.float32))
    assert found.error == pytest.approx(0.01, rel=1e-4)
    assert found.largest is not None
    assert abs(found.largest) < 1e-9  # all logits moved alike: the distribution is the same
