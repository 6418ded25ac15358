"""Contractions whose inner step is a dot product of a group in each 32-bit lane.

tiles     the legal tiles and what they should take
lowering  the C function, put together from parts:
bf16, integer  in which form operands are held
steps, amx  its inner kernel by dot products, and by tiles of Intel AMX
single    rows that are read where they lie, or copied one by one
images    rows that are read in an image, which is staged once
"""

from compiler.devices.cpu.products.dot.lowering import DotContraction, Shape, Staged, Step
from compiler.devices.cpu.products.dot.single import SingleRows
from compiler.devices.cpu.products.dot.steps import DotStep
from compiler.devices.cpu.products.dot.tiles import DotProduct

__all__ = ["DotContraction", "DotProduct", "DotStep", "Shape", "SingleRows", "Staged", "Step"]
