"""A few rows times a constant matrix, which is read once: `product` is the skeleton, the others are forms of panels.

dense   floats or numbers of 24 bits, several panels read side by side
coded   indices into a codebook
placed  what is kept of a matrix with zeros
quantised  codes of few bits in blocks
"""
