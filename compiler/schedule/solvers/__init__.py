"""Solvers of the scheduling problem (`compiler.schedule.problem`; docs/scheduling.md).

sequential     kernels one after another, each split over as many lanes as pay
aligned        the same, split so that lanes read what they wrote
early_start    list scheduling: independent kernels concurrently; placing: where a call ends first
critical_path  list scheduling by upward rank, into gaps
beam           list scheduling that looks ahead
allotment      how many lanes each call gets, from critical path and area
cut            blocks in series and in parallel; clusters: chains of calls that one lane runs without a hand-off
stages         dynamic programming over endings; stage_lanes and stage_schedule make a schedule of it
ideals         sets of calls that a division among devices cuts at; least_load: a pipeline; placement: one inference
sets           sets as the bits of an int
refined        stages from measurements: solve, measure the solution, solve again
descent        lanes and order of a block changed as long as that helps
candidates     all of these by name
optimal        the optimum by a constraint solver, a yardstick
"""
