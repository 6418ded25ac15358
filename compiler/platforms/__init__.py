"""Where a model's parts would run on a described platform, and how fast, predicted: nothing is run.

problem      what is to be placed: units, what each takes on each device, what they hand to each other
costs        a Graph and a Platform as such a problem
granularity  operators, kernels, clusters, blocks or the whole model as the units
timing       stages on devices as a timeline: latency of a frame, and what each device and link has to do for one
shortest     dynamic programming over downward-closed sets
search       all ways of placing, improved, described for each granularity
predict      a file to a prediction; `drawing`: its timeline and curve as SVG

May import: legalise (profiles of accelerators), the front end, rewriting, solvers of schedules.
"""
