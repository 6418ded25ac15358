"""`python -m bench rewrite`: kernels launched per inference beside peers' layers, and what each family of rules and step of fusion is worth."""
