"""Operators of older opsets in the newest form: what a schema says of a call, and how each is upgraded."""
