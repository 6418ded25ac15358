"""Sizes that are given while running: kernels end there, and what lies beyond is neither stored nor read."""
