"""Which compiler this is."""

COMPILER_VERSION = "0.1.0"
