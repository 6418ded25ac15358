"""Sums and extremes over a window, channel by channel.

tiles     the legal tiles and what they should take
tilings   how tiles of pixels lie in an image
lowering  the C function
"""
