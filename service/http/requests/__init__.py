"""Read requests: bodies that stream to the blob store, and what they ask for."""
