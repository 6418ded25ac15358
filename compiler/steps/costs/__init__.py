"""What kernels and graphs cost, by records where there are some and by the model elsewhere."""
