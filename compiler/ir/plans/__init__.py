"""Plans: which lane runs what after what, of one device or several, and the checks that its waits suffice."""
