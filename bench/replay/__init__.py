"""Two commits of the compiler beside each other: the same models, options and records, and what comes out differently.

cases      which models are compiled for what, in sets
side       the compiler as it is at a commit or in the working tree, in a folder of its own
child      the program that runs such a compiler, and no other
outcome    what a compilation left: the parts of its artifact, or why there is none
compiling  outcomes of cases, out of the cache where they are known
functions  generated sources by function
difference what two outcomes differ in
table      what is printed of it
"""
