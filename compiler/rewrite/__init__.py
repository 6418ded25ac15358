"""Graph to Graph: named equations applied to a fixed point, each application logged, each refusal with its reason.

view     what a rule may see of the graph, and the draft in which it writes what should be there instead
rule     the record of one rule
measure  what every application must make smaller: the reason why rewriting ends
program  the graph while it is rewritten
rewrite  the worklist
bodies   those of loops and branches, changed like graphs
region   a part of a program, cut out as a small graph, and put back
choose   the search over choices, by costs
rules/   the equations, one file per subject (README.md there: the rules for writing rules)
choices/ the equations of which only costs say whether they pay

May import: `ir`, `ops`. Must not import: kernels, devices, any other stage.
"""

from compiler.rewrite.rewrite import Application, Refusal, Rewritten, rewrite
from compiler.rewrite.rule import EXACT, REASSOCIATES, Kind, Rule, approximate

__all__ = ["EXACT", "REASSOCIATES", "Application", "Kind", "Refusal", "Rewritten", "Rule", "approximate", "rewrite"]
