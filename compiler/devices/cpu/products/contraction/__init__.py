"""Register-blocked products of fp32.

tiles     the legal tiles and what they should take
lowering  the C function
"""
