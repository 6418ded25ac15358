"""Multipart bodies, read as they stream."""
