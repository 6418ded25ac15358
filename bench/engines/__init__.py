"""Inference engines, each in a process of its own: ours and the peers that it is measured beside."""
