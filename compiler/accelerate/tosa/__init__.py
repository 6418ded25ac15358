"""Models for accelerators in the operators of TOSA, in integers alone: each result is defined to the bit.

execute  what a file holds, and what it computes, in numpy; it travels in artifacts
write    files, with flatbuffers and numpy alone
lower    a TFLite program in these operators
"""
