"""The nouns of the compiler: frozen, printable as text that parses back, each with `verify`.

    tensor       element types, dimensions, layouts
    graph        Graph: SSA over logical operators, what the model says
    open_shapes  OpenShapes: axes whose size is only known while running
    index        quasi-affine index expressions
    interval     what expressions come to where their axes are limited
    expr         scalar expressions over loads
    kernel       Kernel: Blocks of loop nests; Routine: the few that are not loop nests
    arithmetic   what scalar functions, casts and monoids mean, in numpy
    evaluate     what a Kernel means, in numpy
    buffers      KernelGraph: kernels joined by buffers that have a layout and an address
    region       loops and branches: nodes with bodies, calls that consist of calls
    packing      constants rearranged ahead of time
    tile         Tile, Variant, Menu
    target       what every kind of target says of itself
    machine      Protocols through which stages reach a device: Costs, Machine; Workload, Record
    lanes        what the lanes of a plan cost each other
    plan         Plan: which lane runs which tiles of which kernel after what, and where buffers lie
    touched      what a range of tile tasks reads and writes; accesses: what tasks of a plan do
    spaces       what tasks read has come into the memory of their device
    races        tasks that touch the same bytes and are not ordered
    guards       the plans of one artifact, and which is taken where
    program      Program: generated sources, binaries, weights
    text         prints all of them
    parse        reads what text prints: tokens, grammar (types, indices, expressions), parse (the nouns)

Nothing here belongs to a stage, and nothing here knows a device.
"""
