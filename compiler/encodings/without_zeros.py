"""All encodings in which a constant may be kept without some of its zeros."""

from __future__ import annotations

import numpy as np

from compiler.encodings.blocks import block_encodings_of, recurrent_encodings_of
from compiler.encodings.encoding import Encodings
from compiler.encodings.picks import pick_encodings_of, recurrent_pick_encodings_of
from compiler.encodings.sparse import sparse_encodings_of


def encodings_without_zeros(constant: np.ndarray, *, halves: bool) -> Encodings:
    """Of fp32 the elements alone, and where `halves` says that kernels may round it to bf16, groups of two.

    Of signed bytes groups of four. None of a constant of which too little is zero, or of another type.
    """
    group = 4 if constant.dtype == np.int8 else 2 if constant.dtype == np.float32 and halves else 0
    if not group:
        return sparse_encodings_of(constant)
    grouped = (*block_encodings_of(constant, group), *pick_encodings_of(constant, group))
    return (*sparse_encodings_of(constant), *grouped)


def single_encodings_without_zeros(constant: np.ndarray) -> Encodings:
    """Of a matrix in fp32 that few rows are multiplied by: groups of one number."""
    if constant.dtype != np.float32:
        return ()
    return (*block_encodings_of(constant, 1), *pick_encodings_of(constant, 1))


def recurrent_encodings_without_zeros(constant: np.ndarray) -> Encodings:
    """Of weights of a recurrent layer fp32[..., gates, inputs]: blocks of single inputs, and single ones anywhere."""
    return (*recurrent_encodings_of(constant), *recurrent_pick_encodings_of(constant))
