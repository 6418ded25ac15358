"""Libraries for another machine run here, in a process of an emulator (qemu-user).

runner    the program inside (runner.c), which opens a library and carries out requests
emulator  which emulator there is for a target, and its command line
model     a packed artifact, opened by its loader, with its library in the emulator
"""
