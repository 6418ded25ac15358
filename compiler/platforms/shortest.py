"""Stages one after another on devices, so that what they cost together is least: dynamic programming over ideals.

L[I][d] = min over ideals J within I and devices d' other than d of L[J][d'] + message of what crosses + stage of I \\ J
on d. An ideal (`compiler.schedule.solvers.ideals`) holds with each unit all that it reads from. A stage costs as a
whole: a call, its units, and weights beyond the chip's memory. With a factor for each device the cost of a placement is
a weighted sum of what the devices have to do, the Lagrangian of the least period: factors are raised where there is
most to do, and each placement on the way is a candidate (as in the multiplicative weights method, Arora, Hazan and Kale
2012). What crosses is taken to be on the device before; `timing` then says what a placement really takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compiler.platforms.problem import HOST_INPUT, Problem
from compiler.platforms.timing import Stage
from compiler.schedule.solvers.ideals import ideals

MOST_PAIRS = 450_000
"""Of ideals: seconds of search for three devices."""
Array = npt.NDArray[np.float64]


def raised(factors: Sequence[float], loads: Sequence[float], by: float) -> list[float]:
    """Factors of mean 1, larger than before where there is most to do, by so much in the exponent."""
    most = max(loads) or 1.0
    found = [factor * math.exp((load / most - 0.5) * by) for factor, load in zip(factors, loads, strict=True)]
    mean = sum(found) / len(found)
    return [factor / mean for factor in found]


class Shortest:
    """The search in one problem: what does not depend on factors is found once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sets = ideals(problem.before, int((2 * MOST_PAIRS) ** 0.5))
        self.count = len(self.sets)
        self.devices = range(len(problem.devices))
        at = {one: position for position, one in enumerate(self.sets)}
        self.larger = [
            np.array([at[one] for one in self.sets[position + 1 :] if not below & ~one], np.int64)
            for position, below in enumerate(self.sets)
        ]
        members = np.array([[one >> unit & 1 for unit in range(len(problem.before))] for one in self.sets], np.float64)
        seconds = np.array(problem.seconds, np.float64)
        self.work = np.where(np.isfinite(seconds), seconds, 0.0) @ members.T
        self.barred = (~np.isfinite(seconds)).astype(np.float64) @ members.T
        sizes = np.array([sum(each.values()) for each in problem.weights], np.float64)
        self.weights = members @ sizes
        self.distinct = float(sum({id: size for each in problem.weights for id, size in each.items()}.values()))
        self.crossing = [self._crossing(position) for position in range(self.count)]
        self.given = float(sum(one.elements for one in problem.tensors if one.given))

    @property
    def pairs(self) -> int:
        """Of ideals, one within the other."""
        return sum(map(len, self.larger))

    def _crossing(self, position: int) -> tuple[Array, Array]:
        """For each larger ideal the elements that a stage up to it reads: of the caller, and of earlier stages."""
        below = self.sets[position]
        larger = self.larger[position]
        found = np.zeros(len(larger)), np.zeros(len(larger))
        for one in self.problem.tensors:
            own = one.maker == HOST_INPUT
            if one.readers & ~below and (own or below >> one.maker & 1):
                read = [bool(one.readers & self.sets[at] & ~below) for at in larger]
                found[0 if own else 1][:] += one.elements * np.array(read, np.float64)
        return found

    def stages(self, factors: Sequence[float]) -> tuple[Stage, ...] | None:
        """The placement of least cost, where a second on a device costs its factor; None: a unit can run nowhere."""
        problem, count = self.problem, self.count
        best = np.full((len(self.devices), count), np.inf)
        from_set = np.zeros((len(self.devices), count), np.int64)
        from_device = np.full((len(self.devices), count), -1, np.int64)
        for position in range(count):
            larger = self.larger[position]
            if not len(larger):
                continue
            caller, crossing = self.crossing[position]
            for device in self.devices:
                allowed = self.barred[device][larger] == self.barred[device][position]
                if not allowed.any():
                    continue
                one = problem.devices[device]
                excess = np.minimum(self.weights[larger] - self.weights[position], self.distinct) * one.element_bytes
                stage = one.call_s + self.work[device][larger] - self.work[device][position]
                stage = stage + np.maximum(excess - one.memory, 0.0) / one.streamed
                stage = factors[device] * (stage + self._messages(problem.host, device, caller))
                for source in self.devices:
                    if position == 0:
                        if source:
                            break
                        cost = stage
                    elif source == device or not np.isfinite(best[source][position]):
                        continue
                    else:
                        sent = self._messages(source, device, crossing)
                        cost = best[source][position] + stage + sent * max(factors[source], factors[device])
                    better = allowed & (cost < best[device][larger])
                    chosen = larger[better]
                    best[device][chosen] = cost[better]
                    from_set[device][chosen] = position
                    from_device[device][chosen] = -1 if position == 0 else source
        ends = [best[one][-1] + factors[one] * problem.message_s(one, problem.host, self.given) for one in self.devices]
        device = int(np.argmin(ends))
        if not np.isfinite(ends[device]):
            return None
        found: list[Stage] = []
        position = count - 1
        while device >= 0:
            begin, before = int(from_set[device][position]), int(from_device[device][position])
            found.append(Stage((device,), self.sets[position] & ~self.sets[begin]))
            position, device = begin, before
        return tuple(found[::-1])

    def _messages(self, source: int, device: int, elements: Array) -> Array:
        if source == device:
            return np.zeros(len(elements))
        fixed = self.problem.message_s(source, device, 0.0)
        each = self.problem.message_s(source, device, 1.0) - fixed
        return np.where(elements > 0, fixed + each * elements, 0.0)
