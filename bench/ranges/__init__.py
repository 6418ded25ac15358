"""One artifact for a range of sizes beside artifacts for single sizes: models that other people trained."""
