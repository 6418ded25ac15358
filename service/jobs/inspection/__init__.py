"""What only reading a model can answer, asked of a sandboxed process."""
