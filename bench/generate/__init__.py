"""Decoders that generate text token by token, beside the runtimes that are made for them."""
