"""Latency and agreement on a real device: knows nouns and targets, no other stage."""
