"""Schedules of launches on a GPU.

on_gpu        plans
launches      calls that can share a launch, in levels; launch_modes: the variants under which they do
launch_load   what a launch asks of the device
slots         block slots as the resource; what a graph of launches takes
stages        stages whose groups run concurrently or share launches
streams       launches on as few streams as there can be
resident      resident blocks that take tile tasks, instead of launches
graph_plan    a graph of launches as a plan
"""
