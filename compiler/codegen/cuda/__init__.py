"""Kernels as CUDA C++ and the compiler that builds them without a GPU.

    cu_loops            any kernel whose axes are parallel, as one launch: maps, reductions, several blocks at a point
    cu_team             the threads that compute a point together; cu_reduction how they combine; cu_vectors what they take by 16 bytes
    cu_sequential       the same with steps: scans, scatters, recurrent layers in general
    cu_recurrent        recurrent layers by clusters of blocks that keep their weights on chip
    cu_transpose        maps that read along one axis and write along another
    cu_routine          what is no loop nest: TopK, with tw_topk.h
    cu_window           sums and extremes over a window, channel by channel; cu_window_split where threads share a reduction; cu_strip for both
    cu_gemv             a few rows times a constant matrix
    cu_last_block       what the last of several blocks does that share a result
    cu_rounds           work that threads share out in rounds
    cu_scalar           scalar functions, casts and literals, where they differ from C's
    tw_cuda.h           inline PTX behind names, which kernels are written with
    tw_scalar.h         scalar functions and 16-byte vectors in plain CUDA C++
    nvrtc               source to a cubin or PTX, with registers and spills

The program:

    toolchain           NVRTC and a C compiler            launches    the plan as the nodes and edges of a graph
    host                the plan as tables                emit        all of it together
    entry               the __global__ function of a launch            side_by_side  independent small kernels as one launch
    tw_cuda_runtime.h   what the tables are for: the driver, memory, the graph, the C interface
"""
