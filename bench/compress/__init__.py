"""What pruning a model costs in exactness, and what it gains in time."""
