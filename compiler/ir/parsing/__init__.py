"""The text of nouns, read back: tokens, grammar, workloads."""
