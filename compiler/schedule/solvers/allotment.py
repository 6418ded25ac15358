"""How many lanes each call gets before any is placed: critical path and area.

CPA (Radulescu and van Gemund, "A low-cost approach towards mixed task and data parallel scheduling", ICPP 2001): every
call begins with one lane; while the critical path is longer than the work that each lane has on average, the call on
that path gets another that gains most by it.
"""

from __future__ import annotations

from compiler.schedule.problem import Problem, ways_to_the_end


def allotment(problem: Problem) -> tuple[int, ...]:
    """For each call how many lanes it may use. O(calls · lanes · (calls + edges))."""
    options = [dict(problem.lengths(call)) for call in problem.calls]
    counts = [1] * len(options)
    lengths = [every[1] for every in options]
    work = sum(lengths)
    while True:
        ways = ways_to_the_end(problem.before, lengths, problem.handover_s)
        if max(ways, default=0.0) <= work / problem.lanes:
            break
        gains = [gain for call in _longest_chain(problem, ways) if (gain := _gain(call, counts[call], options[call]))]
        if not gains:
            break
        _, call, count = max(gains)
        work += count * options[call][count] - counts[call] * lengths[call]
        counts[call], lengths[call] = count, options[call][count]
    return tuple(counts)


def _longest_chain(problem: Problem, ways: list[float]) -> list[int]:
    """The calls of a critical path, first to last."""
    chain = [max(problem.calls, key=lambda call: ways[call])]
    while following := problem.after[chain[-1]]:
        chain.append(max(following, key=lambda call: ways[call]))
    return chain


def _gain(call: int, count: int, options: dict[int, float]) -> tuple[float, int, int] | None:
    """The next number of lanes on which a call is faster: seconds saved per lane of work, the call, the number."""
    for more in range(count + 1, max(options) + 1):
        if more in options and options[more] < options[count]:
            return options[count] / count - options[more] / more, call, more
    return None
