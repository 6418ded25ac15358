"""Layers with sparse weights beside their dense forms."""
