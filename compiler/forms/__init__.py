"""Recognisers of shapes of computation: a kernel seen as something that there are algorithms for. No device.

normal_form  kernels as lowering wants them: axes joined, temporaries without what they need not have
contraction  matrix products; gemv: those of few rows, whose cost is that of reading a constant matrix once
integer      products of bytes with zero points; groups: panels for dot products of groups
gated        products of which a factor varies along the summed axes alone
operand      how a product's rows are reached: in place, staged as an image, gathered
windowed     operands read through a sliding window, as images over swept positions
channelwise  reductions over a window, channel by channel
separable    such a window and the pointwise product that reads it
excitation   squeeze and excitation: channel means and two small products of them
attention    two products and the softmax between them
recurrence   products with constants and maps, step after step
winograd     convolutions of unit stride by minimal filtering, and what that adds to errors
updates      kernels that change some elements and copy the others
transpose    maps whose operands are contiguous along another axis than their results
cache_lines  what is fetched at once, and which addresses share a set

May import: `ir`.
"""
