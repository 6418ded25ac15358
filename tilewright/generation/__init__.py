"""Text from a decoder's artifact, token by token, on this machine."""
