"""`python -m bench schedule`: every schedule that is found for a model, run whole and in turn."""
