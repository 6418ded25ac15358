"""What the algorithms of CUDA targets print CUDA C++ with.

workload      a call with as much of its buffers' geometry as its code depends on
lowered       what lowering a kernel gives; entry: the __global__ function of a launch
regions       the same of a loop or a branch: kernels of bodies, and what the host decides by
scalars       scalar functions, casts and literals, where they differ from C's
fragments     fragments of tensor cores; rows: how rows lie in shared memory
operands      operands on their way to fragments; axes: positions decoded
epilogue      what follows a product on its results; rectangles: on rectangles of pixels
panels        constants packed for tensor cores; sparse_panels: for sparse ones; lane_columns: for the lanes of warps
rounds        work that threads share out in rounds
last_block    what the last of several blocks does that share a result
"""
