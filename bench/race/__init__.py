"""Engines that take turns on the same inputs, and what their times say of each other."""
