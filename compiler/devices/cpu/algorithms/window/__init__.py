"""Sums and extremes over a window, channel by channel: depthwise convolution, pooling.

tiles     the legal tiles and what they should take
lowering  the C function
groups    the same for convolutions of bytes in groups, by dot products
"""

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.algorithms.window.groups import BYTE_GROUPS as BYTE_GROUPS
from compiler.devices.cpu.algorithms.window.lowering import window
from compiler.devices.cpu.algorithms.window.tiles import window_tiles

WINDOW = Algorithm(("window",), window_tiles, window, takes=any_short)
