"""KernelGraph -> menus: for each distinct kernel, how it may be tiled, what that costs, what was measured.

    key         under which name measurements of a kernel are kept
    model       what a tile should cost, from traffic and arithmetic
    algorithms  the legal tiles of each algorithm
    nearby      what records of other kernels and other machines hint at
    belief      what tiles that were not measured may cost, and what measuring one is worth
    search      which tiles are measured, in which order, and when to stop
    frugal      tiles that leave more of a GPU to kernels beside them, at little loss
    known       records looked up: what is known of tiles, which searches were made
    shared      kernels measured on several lanes
    tune        candidates, records looked up, those worth measuring measured within the budget

May know: `ir`, `targets`, `trace`. Must not know: C, how anything is timed.
"""
