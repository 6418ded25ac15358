"""`python -m bench kernels`: where the time of a model goes, kernel by kernel, beside the peers' own layers."""
