"""Artifacts raced with the models that they were compiled from, on other runtimes."""
