"""Processes that hold a device: know the service and the compiler; nothing imports them."""
