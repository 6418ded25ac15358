"""Kernels as CUDA C++ and the compiler that builds them without a GPU.

    cu_loops            any kernel whose axes are parallel, as one launch: maps, reductions, several blocks at a point
    cu_scalar           scalar functions, casts and literals, where they differ from C's
    tw_cuda.h           inline PTX behind names, which kernels are written with
    tw_scalar.h         scalar functions and 16-byte vectors in plain CUDA C++
    nvrtc               source to a cubin or PTX, with registers and spills

No target uses it yet: kernels run on the double of `tests/cuda_double` only.
"""
