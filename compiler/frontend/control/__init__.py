"""Loops, branches, scans and sequences: walked as often as they run, or kept as regions."""
