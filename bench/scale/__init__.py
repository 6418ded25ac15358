"""The service with many workers, simulated from what its steps cost."""
