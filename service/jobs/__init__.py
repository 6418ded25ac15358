"""Commands: what may happen to a job. No HTTP and no SQL is written here."""
