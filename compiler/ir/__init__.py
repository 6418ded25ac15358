"""The nouns of the compiler: frozen, printable as text that parses back, each with `verify`.

    tensor       element types, dimensions, layouts
    graph        Graph: SSA over logical operators, what the model says
    index        quasi-affine index expressions
    expr         scalar expressions over loads
    kernel       Kernel: Blocks of loop nests; Routine: the few that are not loop nests
    arithmetic   what scalar functions, casts and monoids mean, in numpy
    evaluate     what a Kernel means, in numpy
    buffers      KernelGraph: kernels joined by buffers that have a layout and an address
    tile         Tile, Variant, Menu
    plan         Plan: which lane runs which tiles of which kernel after what, and where buffers lie
    program      Program: generated sources, binaries, weights
    machine      Protocols through which stages reach a device: Costs, Machine; Record
    normal_form  kernels as lowering wants them: axes joined, temporaries without what they need not have
    contraction  kernels seen as matrix products
    gemv         those of few rows, whose cost is that of reading a constant matrix once
    integer      products of bytes with zero points
    attention    two products and the softmax between them
    recurrence   products with constants and maps, step after step
    winograd     convolutions of unit stride by minimal filtering, and what that adds to errors
    operand      how a matrix product's rows are reached: in place, staged as an image, gathered
    windowed     operands read through a sliding window, as images over swept positions
    channelwise  kernels that reduce over a window channel by channel
    interval     what expressions come to where their axes are limited
    packing      constants rearranged ahead of time
    groups       panels for dot products of groups          narrow  panels of 24-bit numbers
    cache_lines  what is fetched at once, and which addresses share a set
    text         prints all of them
    parse        reads what text prints: tokens, grammar (types, indices, expressions), parse (the nouns)

Nothing here belongs to a stage, and nothing here knows a device beyond what all CPUs of interest share (`cache_lines`).
"""
