"""Webhooks: what owners are told of their jobs' ends, and how it is delivered."""
