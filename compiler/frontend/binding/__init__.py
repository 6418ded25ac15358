"""Sizes: each dimension of the inputs gets a number, and options that fail to give one are corrected."""
