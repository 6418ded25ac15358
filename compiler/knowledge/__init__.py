"""What has been measured: the kinds of record, how each is made, and how those that count are found.

kinds    the kinds of record as a table
making   a constructor for each kind
records  Records: looked up by kind, device, workload, setting and state of the cores
known    what they say of kernels and their tiles
carried  what a change of the compiler leaves true of them
shipped  records that come with the compiler, and those of other hardware as starting points

May know: `ir`.
"""
