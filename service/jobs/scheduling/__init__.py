"""Between jobs and workers: who does what, and how they hear of it."""
