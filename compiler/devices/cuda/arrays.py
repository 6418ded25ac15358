"""CuPy's arrays, where CuPy is installed: the float64 reference of a GPU's artifact is evaluated on that GPU."""

from __future__ import annotations

import os

from compiler.prove.array_module import ArrayModule


def cupy_arrays() -> ArrayModule | None:
    """Arrays on this process's GPU; None without CuPy.

    Its kernels are compiled anew in each process: a folder of them that anybody may write to would decide what runs.
    """
    os.environ.setdefault("CUPY_CACHE_IN_MEMORY", "1")
    try:
        import cupy
    except ImportError:
        return None
    return ArrayModule(
        f"CuPy {cupy.__version__}", cupy.asarray, cupy.asnumpy, cupy.get_default_memory_pool().free_all_blocks
    )
