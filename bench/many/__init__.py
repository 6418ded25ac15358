"""Many models in one process: called in turn, and at once.

run    the command
child  one engine's process
"""
