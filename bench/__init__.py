"""Side-by-side measurements against peers: stands apart, and nothing imports it."""
