"""RandWire (Xie et al. 2019, arXiv 1904.01569): stages wired by Watts-Strogatz random graphs WS(4, 0.75)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.zoo.builder import GraphBuilder, Value

NEIGHBOURS = 4
REWIRED = 0.75


def randwire_small(g: GraphBuilder, *, size: int = 224, wiring: int = 0) -> None:
    """Small regime (Table 1): C = 78, N = 32; `wiring` seeds the random graphs."""
    x = g.input("image", (1, 3, size, size))
    x = g.bn(g.conv(x, 39, 3, 2))
    x = g.bn(g.conv(g.relu(x), 78, 3, 2))
    _stages(g, x, (32, 32, 32), (78, 156, 312), wiring)


def randwire_large(g: GraphBuilder, *, size: int = 224, wiring: int = 0) -> None:
    """Regular regime (Table 1): C = 154, N = 32, the network of IOS."""
    x = g.input("image", (1, 3, size, size))
    x = g.bn(g.conv(x, 77, 3, 2))
    _stages(g, x, (16, 32, 32, 32), (154, 308, 616, 1232), wiring)


def watts_strogatz(nodes: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Edges (i, j), i < j, of WS(4, 0.75): a ring where each node's edges to its next two are rewired with p = 0.75."""
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for i in range(nodes):
        for hop in range(1, NEIGHBOURS // 2 + 1):
            neighbours[i].add((i + hop) % nodes)
            neighbours[(i + hop) % nodes].add(i)
    for hop in range(1, NEIGHBOURS // 2 + 1):
        for i in range(nodes):
            if rng.random() >= REWIRED:
                continue
            free = [j for j in range(nodes) if j != i and j not in neighbours[i]]
            old, new = (i + hop) % nodes, free[int(rng.integers(len(free)))]
            neighbours[i].remove(old)
            neighbours[old].remove(i)
            neighbours[i].add(new)
            neighbours[new].add(i)
    return [(i, j) for i in range(nodes) for j in sorted(neighbours[i]) if i < j]


def _stages(g: GraphBuilder, x: Value, nodes: Sequence[int], channels: Sequence[int], wiring: int) -> None:
    for stage, (count, width) in enumerate(zip(nodes, channels, strict=True)):
        edges = watts_strogatz(count, np.random.default_rng([wiring, stage]))
        x = _random_stage(g, x, count, edges, width)
    x = g.relu(g.bn(g.conv(g.relu(x), 1280, 1)))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def _random_stage(g: GraphBuilder, x: Value, nodes: int, edges: Sequence[tuple[int, int]], width: int) -> Value:
    """Nodes without a predecessor read the stage's input at stride 2; those without a successor are averaged."""
    outputs: list[Value] = []
    for node in range(nodes):
        sources = [outputs[i] for i, j in edges if j == node]
        outputs.append(_node(g, _gather(g, sources), width, 1) if sources else _node(g, x, width, 2))
    starts = {i for i, _ in edges}
    sinks = [outputs[node] for node in range(nodes) if node not in starts]
    total = sinks[0]
    for sink in sinks[1:]:
        total = g.add(total, sink)
    return g.scale(total, 1.0 / len(sinks)) if len(sinks) > 1 else total


def _gather(g: GraphBuilder, sources: Sequence[Value]) -> Value:
    """Sum of the inputs, each under a learned positive weight (sigmoid of N(0, 1))."""
    if len(sources) == 1:
        return sources[0]
    weighted = []
    for source in sources:
        weight = 1.0 / (1.0 + np.exp(-g.rng.standard_normal()))
        weighted.append(g.scale(source, float(weight)))
    total = weighted[0]
    for term in weighted[1:]:
        total = g.add(total, term)
    return total


def _node(g: GraphBuilder, x: Value, width: int, stride: int) -> Value:
    """ReLU, 3x3 depthwise, pointwise, batch norm."""
    y = g.relu(x)
    y = g.conv(y, y.channels, 3, stride, groups=y.channels, gain=1.0)
    return g.bn(g.conv(y, width, 1))
