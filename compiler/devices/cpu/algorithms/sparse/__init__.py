"""Products and convolutions by constant weights of which a good part is zero.

plane     where a task's positions lie side by side
tiles     the legal tiles and what they should take
lowering  the C function
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm
from compiler.devices.cpu.algorithms.sparse.lowering import sparse
from compiler.devices.cpu.algorithms.sparse.tiles import sparse_tiles

SPARSE = Algorithm(("sparse",), sparse_tiles, sparse)
