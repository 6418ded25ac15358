"""One file per step of the history, in order of its number."""
