"""Tuning records and the progress of searches."""
