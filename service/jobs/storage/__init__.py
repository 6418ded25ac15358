"""Models, samples and uploads: what is kept as blobs, and whether it is intact."""
