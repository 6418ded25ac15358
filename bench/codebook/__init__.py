"""Products by weights of few values beside their dense forms."""
