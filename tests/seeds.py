"""One test for many cases, seeds above all: making fixtures and a report for each would take longer than they do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(seeds: Iterable[object], name: str = "seed") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each seed, which it takes as its argument `name`; a failure names the seed.

    Fixtures are made once for all seeds. A seed may not be skipped: that would skip those after it.
    """
    chosen = tuple(seeds)
    if not chosen:
        raise ValueError("a test without a seed tests nothing")

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for seed in chosen:
                try:
                    test(**{name: seed}, **fixtures)
                except Exception as failure:
                    failure.add_note(f"{name} = {seed}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        if len(others) == len(signature.parameters):
            raise TypeError(f"{test.__name__} takes no argument `{name}`")
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorated
