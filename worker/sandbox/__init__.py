"""Restrictions of a process that reads an untrusted model."""
