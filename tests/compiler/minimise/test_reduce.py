"""What delta debugging keeps, beside what a failure is made to need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import onnx
import pytest

from compiler.minimise.network import Network as Parts
from compiler.minimise.network import Part
from compiler.minimise.reduce import Search
from tests.compiler.networks import Network
from tests.seeds import each

NODES = 12


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Activations in a row."""
    folder = tmp_path_factory.mktemp("chain")
    net = Network()
    value = net.input(1, 4)
    for _ in range(NODES):
        value = net.node("Relu", [value], (1, 4))
    onnx.save(net.model([value]), folder / "model.onnx")
    return Parts.of(folder / "model.onnx", folder, None)


def searched(chain: Parts, fails: Callable[[Part], bool], named: Sequence[int] = (), most: int = 10_000) -> Search:
    """A search through all nodes, run to its end or to so many trials."""
    search = Search(chain, Part(tuple(range(NODES))), fails, is_over=lambda: False, most_trials=most)
    assert search.run(named) == (search.trials < most)
    return search


@each(range(40))
def test_what_a_failure_needs_remains_and_nothing_else(seed: int, chain: Parts) -> None:
    random = Random(seed)
    needed = {*random.sample(range(NODES), random.randint(1, 5))}
    named = random.sample(range(NODES), random.randint(0, 3))
    search = searched(chain, lambda part: needed <= {*part.nodes}, named)
    assert {*search.best.nodes} == needed


@each(range(40))
def test_no_node_can_be_left_out_of_what_remains_whatever_fails(seed: int, chain: Parts) -> None:
    """Where more nodes may hide a failure that fewer show, as two bugs that cancel out do."""
    random = Random(seed)
    needed = {*random.sample(range(NODES), random.randint(1, 3))}
    hidden = {*random.sample(range(1, NODES), 4)}

    def fails(part: Part) -> bool:
        return needed <= {*part.nodes} and len(part.nodes) not in hidden

    best = searched(chain, fails).best
    assert fails(best)
    assert len(best.nodes) == 1 or not any(fails(best.only({*best.nodes} - {node})) for node in best.nodes)


@each(range(10))
def test_trials_are_counted_and_end_the_search_with_a_part_that_fails(seed: int, chain: Parts) -> None:
    tried: list[Part] = []

    def fails(part: Part) -> bool:
        tried.append(part)
        return {2, 9} <= {*part.nodes}

    search = searched(chain, fails, most=seed + 1)
    assert len(tried) == search.trials <= seed + 1
    assert len({part.key for part in tried}) == len(tried)
    assert sum(step.trials for step in search.log) == search.trials
    assert {2, 9} <= {*search.best.nodes}
