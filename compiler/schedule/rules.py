"""Rules of scheduling that a compilation may do without, by their names in the option `without`.

critical_first   of calls that can begin at the same time the one with the longest way to the end goes first
runs_alone       a call that fills the device runs alone: on a CPU it gets as many lanes as make it end first while
                 others are ready, on a GPU launches that run together need no more block slots than there are, if
                 that is predicted faster
linear_clusters  chains of calls are kept together in the search for stages
"""

from __future__ import annotations

CRITICAL_FIRST, RUNS_ALONE, LINEAR_CLUSTERS = "critical_first", "runs_alone", "linear_clusters"
SCHEDULING = (CRITICAL_FIRST, RUNS_ALONE, LINEAR_CLUSTERS)
