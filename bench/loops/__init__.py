"""Decoders that are a Loop: the artifact decides while it runs how often."""
