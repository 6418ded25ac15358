"""`python -m bench rewrite`: kernels launched per inference beside peers' layers.

Also what each family of rules and step of fusion is worth.
"""
