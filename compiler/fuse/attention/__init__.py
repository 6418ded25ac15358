"""Attention as one call: of floats, of bytes, of few queries, and the keys that a mask leaves out."""
