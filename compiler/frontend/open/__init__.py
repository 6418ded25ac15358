"""Open axes: models whose sizes are only known while running, as static graphs at capacity.

    extent      sizes as polynomials with bounds
    values      what is known of values: real shapes, elements that are sizes; how new ones are made
    evaluation  arithmetic of shapes, done while the model is read
    carried     what a kernel does along an axis
    site        one call as rules see it
    places      elements that come into another order by places that are computed while running
    views, indexed, combine, windows, products, rules   what operators make of open axes
    measured, loops   sizes that data decide: elements that are kept, branches, iterations
    appended          what a loop appends to
    growth            caches to which each run appends, as states
    boxes, unique     NonMaxSuppression and Unique
    sized             which operators these are
    few               inputs with few legal values: each is compiled, and the right one chosen
    data_dependent, resized
                      shapes, places and counts that only data say, each up to a bound
    examples          inputs that such a model takes
    borders     where sizes enter and leave a graph

Every value with an open axis has the axis's capacity and is zero from its size on; `rules` keeps that. The idea is
that of bounded dynamic shapes with padding, as XLA's dynamic padder has it. May know: the rest of the front end.
"""
