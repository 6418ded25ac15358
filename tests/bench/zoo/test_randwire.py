from __future__ import annotations

import numpy as np
import pytest

from bench.zoo.randwire import watts_strogatz


@pytest.mark.parametrize("seed", range(5))
def test_rewiring_keeps_two_edges_per_node_and_makes_an_acyclic_graph(seed: int) -> None:
    edges = watts_strogatz(32, np.random.default_rng(seed))
    assert len(edges) == len(set(edges)) == 2 * 32
    assert all(i < j for i, j in edges)


def test_three_quarters_of_the_ring_are_rewired() -> None:
    ring = {(min(i, (i + hop) % 400), max(i, (i + hop) % 400)) for i in range(400) for hop in (1, 2)}
    kept = ring & set(watts_strogatz(400, np.random.default_rng(0)))
    assert 0.2 < len(kept) / len(ring) < 0.3
