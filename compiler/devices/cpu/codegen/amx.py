"""What a tile of AMX holds, and how its registers are shared out."""

ROWS, GROUPS, COLUMNS = 16, 16, 16
"""Of the largest tiles: rows of A, groups of k, columns of B."""
SUMS = 4
"""Registers for sums; the others hold A and B, each for whole tiles of k and for what is left of it."""
A, A_REST, B, B_REST = 4, 5, 6, 7
