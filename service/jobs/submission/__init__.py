"""Accept jobs: one module for each kind of request, and what they share."""
