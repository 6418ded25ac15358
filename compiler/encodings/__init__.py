"""How the elements of a constant may be kept in memory, each way in one file: the values of a constant decide which.

    encoding     what all of them are
    int24        floats in 24 bits
    sparse       single elements without most zeros, each with its place
    blocks       groups of neighbours that are not zero for some lines
    picks        steps in which each line picks a few elements of a window; combined: columns packed without conflicts
    two_of_four  two of each four neighbours
    codebook     indices into few values
    low_rank     a matrix as a product of two
    zeros        how many zeros there are, and how they lie
    found        what was found in the values of an array, looked for once

Nothing here knows a noun of the compiler (`compiler.ir`): a constant is a numpy array.
"""
