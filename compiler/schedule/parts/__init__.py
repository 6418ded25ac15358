"""A kernel graph divided among devices that share a memory.

dividing  what each call takes on each device as a problem, and a solution of it as parts with their waits
portions  one part as a kernel graph of its own
"""
