"""KernelGraph -> menus: for each distinct kernel, how it may be tiled, what that costs, what was measured.

    proposal      a legal tile with its cost by the model
    error_budget  how much a call may add to the error of a model
    nearby        what records of other kernels and other machines hint at
    belief        what tiles that were not measured may cost, and what measuring one is worth
    search        which tiles are measured, in which order, and when to stop
    frugal        tiles that leave more of a GPU to kernels beside them, at little loss
    shared        kernels measured on several lanes
    knapsack      a level for each layer within a budget of error, by dynamic programming
    tune          candidates, records looked up, those worth measuring measured within the budget

May know: `ir`, `knowledge`, `trace`. Must not know: a kind of device, C, how anything is timed.
"""
