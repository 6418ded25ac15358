"""Products put together from parts: a skeleton, and parts that answer its questions and do not know each other.

few_rows  a few rows times a constant matrix
"""
