"""Measuring that no kind of device does in its own way.

rounds      which rounds were undisturbed, when a trial has lost
spread      median and deciles
pattern     what operands are filled with
memory      storages of a plan as arrays
conditions  what else the machine does, and whether that disturbed a round
benchmark   models timed in interleaved rounds
compare     one latency beside another, with a confidence interval of their ratio
plans       whole plans raced
latency     one model's latency
npz         inputs from and outputs to .npz files

May import: `ir`. Must not depend on: how code is generated.
"""
