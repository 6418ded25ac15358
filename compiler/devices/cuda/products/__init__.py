"""What products on a GPU are put together from, whichever algorithm does it.

lowering    the skeleton, of operands, a cut of k and a flow through shared memory
pipeline    all steps of k, through stages of shared memory
floats      parts of products of floats
bytes       parts of products of bytes with zero points
wgmma       the multiply step of warpgroups
operand     how the rows of a product are reached
reading     operands on their way to shared memory
tiles       sizes of block tiles, and which of them are worth a look
costs       what a block asks of a multiprocessor, and how long that takes
warpgroups  both for products by warpgroups
"""
