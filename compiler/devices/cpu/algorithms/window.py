"""Sums and extremes over a window, channel by channel: depthwise convolution, pooling."""

from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.products.window.lowering import window
from compiler.devices.cpu.products.window.tiles import window_tiles

WINDOW = Algorithm(("window",), window_tiles, window, takes=any_short)
