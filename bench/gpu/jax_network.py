"""A translated graph for XLA, through JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.gpu.array_network import Around, Arrays, array_table
from bench.gpu.translation import Program, evaluate


def convolve(x: Any, w: Any, strides: tuple[int, ...], around: Around, dilations: tuple[int, ...], groups: int) -> Any:
    """x [N, C, H, W] by w [K, C / groups, h, w]; `around` has (before, after) for each spatial axis."""
    return lax.conv_general_dilated(
        x,
        w,
        strides,
        list(around),
        rhs_dilation=dilations,
        feature_group_count=groups,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )


def pool(x: Any, kernel: tuple[int, ...], strides: tuple[int, ...], around: Around, kind: str) -> Any:
    """`max` or else sum of each window of x [N, C, H, W]; `around` has (before, after) for each spatial axis."""
    first = (-np.inf, lax.max) if kind == "max" else (0.0, lax.add)
    window, steps = (1, 1, *kernel), (1, 1, *strides)
    return lax.reduce_window(x, x.dtype.type(first[0]), first[1], window, steps, [(0, 0), (0, 0), *around])


def network(program: Program, dtype: Any) -> Callable[[Sequence[Any]], Any]:
    """A compiled function of the inputs' arrays, in the program's order.

    Float weights are kept as `dtype` on the device.
    """
    arrays = Arrays(jnp, lax.erf, convolve, pool, dtype)
    table = array_table(arrays)
    weights = {
        name: jax.device_put(array.astype(dtype) if array.dtype.kind == "f" else array)
        for name, array in program.weights.items()
    }

    compiled = jax.jit(lambda inputs, weights: evaluate(program, table, inputs, weights))
    return lambda inputs: compiled(inputs, weights)
