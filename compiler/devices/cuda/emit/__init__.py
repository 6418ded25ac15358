"""Plan -> Program for a GPU.

lower         one kernel, by the algorithm its tile names
launches      the plan as the nodes and edges of a graph
persistent    the plan as one persistent kernel
side_by_side  independent small kernels as one launch
flow          launches as graphs, and what the host decides between them
host          the plan as tables
program       all of it together
"""
