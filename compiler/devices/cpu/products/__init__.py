"""Products put together from parts: a skeleton, and parts that answer its questions and do not know each other.

contraction  register-blocked products of fp32: matrices and convolutions
dot          the same of bytes and of bf16: k in steps of a group that fills a lane
few_rows     a few rows times a constant matrix
window       sums and extremes over a window, channel by channel
row_cuts     what those that work on images share: tiles that give each lane some rows
"""
