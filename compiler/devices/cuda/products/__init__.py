"""What products on a GPU are put together from, whichever algorithm does it.

tiles       sizes of block tiles, and which of them are worth a look
costs       what a block asks of a multiprocessor, and how long it takes
warpgroups  both for products by warpgroups
operand     how the rows of a product are reached
"""
