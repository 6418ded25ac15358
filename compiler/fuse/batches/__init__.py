"""Batches: whether samples are computed each by itself, and the calls that run a slice of them."""
