"""One machine's whole service under one process: API and workers."""
