from __future__ import annotations

import onnx
import pytest

from bench.loops.decoder import greedy_decoder
from bench.loops.run import Row, table


@pytest.mark.parametrize("growing", [True, False])
def test_a_decoder_is_a_model_that_onnx_takes(growing: bool) -> None:
    onnx.checker.check_model(onnx.load_from_string(greedy_decoder(8, 2, 1, 10, 5, growing=growing)), full_check=True)


def test_the_table_has_ratios_of_neighbours_and_says_whether_tokens_are_equal() -> None:
    text = table([Row("a", (1e-3, 2e-3, 3e-3), (4e-3, 4e-3, 4e-3), True), Row("b", (1e-3,), (1e-3,), False)])
    assert "| a | 2.0 | 4.0 | 0.50 (0.30..0.70) | equal |" in text
    assert "| b | 1.0 | 1.0 | 1.00 (1.00..1.00) | DIFFERENT |" in text
