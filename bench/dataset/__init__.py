"""`python -m bench dataset`: kernels of networks under many tiles, each measured twice, as a documented data set."""
