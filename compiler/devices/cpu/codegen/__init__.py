"""What the algorithms of CPU targets print C with.

lowered       what lowering a kernel gives, and how a kernel function begins
strips        loops over vectors along an axis
epilogue      what follows a product on its results
micro_kernel  the innermost loops of a product
operands      how a product's operands are brought to it
rows          products of a few rows
"""
