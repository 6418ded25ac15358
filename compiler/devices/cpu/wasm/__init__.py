"""Browsers as targets: WebAssembly with vectors of four floats, by the algorithms of CPUs.

kind    the descriptor
target  instruction-set profiles, and what a module cannot be
node    a module run by Node.js, through the JavaScript of its own artifact
"""
