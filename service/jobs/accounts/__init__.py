"""Who calls: keys and what they allow, quotas, and the log of who changed what."""
