"""What integer and bf16 products share: contractions whose inner step is a dot product of a group in each 32-bit lane.

tiles     the legal tiles and what they should take
lowering  the C function, of which `bf16` and `integer` say in which form operands are held
steps     its inner kernel by dot products
single    rows that are read where they lie, or copied one by one
images    rows that are read in an image, which is staged once
"""

from compiler.devices.cpu.algorithms.dot.lowering import DotContraction, Shape, Staged, Step
from compiler.devices.cpu.algorithms.dot.single import SingleRows
from compiler.devices.cpu.algorithms.dot.steps import DotStep
from compiler.devices.cpu.algorithms.dot.tiles import DotProduct

__all__ = ["DotContraction", "DotProduct", "DotStep", "Shape", "SingleRows", "Staged", "Step"]
