"""A job's states: how it moves along them, and what its owner sees of it."""
