"""Models of any origin, as a stranger compiles them: what becomes of each."""
