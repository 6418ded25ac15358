"""`python -m bench search`: how near the tile search comes to trying everything, on ten kernels of known networks."""
