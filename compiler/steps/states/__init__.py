"""States that inferences hand on: found by their names, in fewer bits, and proved run by run."""
