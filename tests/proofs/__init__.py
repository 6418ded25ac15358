"""Rewrite rules proved by a solver (`make prove-rules`, docs/verification.md).

sizes       integers that carry polynomials over named sizes, and the way that a run took
known       constants that remember how they were made
instances   left sides of named sizes
attempt     a rule run on such a left side, and both sides compared
lift        an element of a graph as one expression, by the operators' definitions
reduce      a reduction as an expression
sums        sums over named ranges in one form
terms       expressions as terms of the solver
catalogue   every rule with its left sides
reasons     why some have no proof
states      what is shown of a rule; `kept` what a file keeps of that
mistakes    mistakes in rules, of which the solver finds examples
"""
