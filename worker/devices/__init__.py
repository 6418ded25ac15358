"""Devices that a worker may hold, and what it can compile for them."""
