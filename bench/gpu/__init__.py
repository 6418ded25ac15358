"""`python -m bench gpu`: what needs a GPU, in parts that stop in time and go on where they stopped."""
