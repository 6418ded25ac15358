"""One worker's try at a job: a child does the work, the worker attends to it."""
