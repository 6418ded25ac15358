from __future__ import annotations

import pytest

from tests.seeds import each


def test_every_seed_is_run_once() -> None:
    seen = []

    @each(range(3, 7))
    def run(seed: int) -> None:
        seen.append(seed)

    run()
    assert seen == [3, 4, 5, 6]


def test_a_failure_names_the_seed_and_fixtures_and_parameters_are_given() -> None:
    @each(range(9))
    def small(seed: int, most: int) -> None:
        assert seed <= most

    with pytest.raises(AssertionError) as failed:
        small(most=6)
    assert failed.value.__notes__ == ["seed = 7"]


def test_a_test_without_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="tests nothing"):
        each(())
    with pytest.raises(TypeError, match="no argument `seed`"):
        each(range(2))(lambda other: None)


@pytest.mark.parametrize("most", [4, 9])
@each(range(5))
def test_parameters_and_fixtures_come_beside_the_seed(seed: int, most: int, request: pytest.FixtureRequest) -> None:
    assert seed <= most
    assert request.node.callspec.params == {"most": most}
