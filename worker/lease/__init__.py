"""Threads that keep a claim, and the worker's status, alive."""
