"""Why some rules have no proof for all sizes."""

from __future__ import annotations

from collections.abc import Mapping

_ARRAYS = "it looks at the numbers of constants, one by one"
_STEPS = "its operator goes step by step, and has no element as an expression"

REASONS: Mapping[str, str] = {
    "constant_folding": "both sides are the reference's own result: there is no equation of sizes",
    "bytes_between": "conversions to bytes are functions of which nothing is known to the solver",
    "products_of_bytes": _ARRAYS,
    "saturated_anyway": "it rests on how conversions to bytes round and saturate, which is unknown to the solver",
    "scaled_ahead": _ARRAYS,
    "function_of_a_byte": "a table of 256 numbers, which a test compares one by one",
    "gather_of_range": _ARRAYS,
    "gather_between_reshapes": _ARRAYS,
    "unfold_into_conv": _ARRAYS,
    "slice_past_sums": "one of its left sides is a whole network, which is too much for the solver",
    "rearrangement_past_maps": "quotients of sizes at which a Concat is read are too much for the solver",
    "mish_by_softplus": "of large numbers it takes the quotient for 1, to which floats round it: the reals differ",
    "scatter_of_block": _STEPS,
    "rnn_of_one_step": _STEPS,
    "lstm_of_one_step": _STEPS,
    "gru_of_one_step": _STEPS,
    "lstm_by_cells": _STEPS,
    "gru_by_cells": _STEPS,
    "sigmoid_form": "its bound is proved from the second derivative, where it is applied",
    "relu_sum": "its bound is proved from the second derivative, where it is applied",
    "product_by_squares": "its bound is proved from the second derivative, where it is applied",
    "pointwise_before_resize": "the weights of a resize are too many parts",
    "divide_by_power_of_two": _ARRAYS,
    "product_by_low_rank": "the factors are found numerically, and compared with the matrix",
}
