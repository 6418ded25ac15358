"""What the service has to know of samples without reading them."""

MOST_SAMPLES = 16
"""Of one compilation."""
