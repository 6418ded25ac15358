"""Random small problems of placement, the same in every run, and the best of what brute force finds in them."""

from __future__ import annotations

import math
from itertools import permutations, product
from random import Random

from compiler.platforms.problem import HOST_INPUT, Device, Link, Problem, Tensor
from compiler.platforms.timing import Stage, Timing


def random_problem(seed: int, units: int = 5, devices: int = 2, latencies: tuple[float, ...] = (0.0, 0.25)) -> Problem:
    """Units of 1 to 9 seconds that some devices cannot run, links of unequal speed, the first device is the host."""
    random = Random(seed)
    before = [tuple(sorted(random.sample(range(at), min(at, random.choice((1, 1, 2)))))) for at in range(units)]
    seconds = [
        [math.inf if device and random.random() < 0.15 else float(random.randint(1, 9)) for _ in range(units)]
        for device in range(devices)
    ]
    tensors = [Tensor(random.randint(1, 8), HOST_INPUT, 1)]
    for at in range(units):
        readers = sum(1 << one for one in range(units) if at in before[one])
        tensors.append(Tensor(random.randint(1, 8), at, readers, given=not readers))
    links: dict[tuple[int, int], Link] = {}
    for a in range(devices):
        for b in range(a + 1, devices):
            latency, rate = random.choice(latencies), random.choice((8.0, 32.0))
            links |= {ends: Link(f"{a}-{b}", latency, rate, ends) for ends in ((a, b), (b, a))}
    return Problem(
        [f"u{at}" for at in range(units)],
        before,
        seconds,
        [{} for _ in range(units)],
        tensors,
        [Device(f"d{at}", f"d{at}", element_bytes=1) for at in range(devices)],
        links,
    )


def least_latency(problem: Problem) -> float:
    """By every order of the units on every choice of devices, each unit a stage."""
    timing = Timing(problem)
    count = len(problem.before)
    best = math.inf
    for order in permutations(range(count)):
        if any(order.index(one) > order.index(unit) for unit in range(count) for one in problem.before[unit]):
            continue
        for homes in product(range(len(problem.devices)), repeat=count):
            made = timing.timeline([Stage((homes[unit],), 1 << unit) for unit in order])
            best = min(best, made.latency_s if made else math.inf)
    return best


def least_period(problem: Problem) -> float:
    """By every choice of devices, from what each device and link has to do."""
    timing = Timing(problem)
    best = math.inf
    for homes in product(range(len(problem.devices)), repeat=len(problem.before)):
        made = timing.timeline([Stage((home,), 1 << unit) for unit, home in enumerate(homes)])
        best = min(best, made.period_s if made else math.inf)
    return best
