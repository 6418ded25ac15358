"""One machine's whole service under one process: broker, API, worker."""
