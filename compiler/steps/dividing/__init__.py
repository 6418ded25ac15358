"""The step for several devices: calls divided among them, proved, measured and chosen."""
