"""Sums of products: what they add up, and what their operands share, has one size and one capacity in all operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.frontend.open.extent import Number, Numbers
from compiler.frontend.open.site import OpenSite, broadcast, fitted, same

Ids = list[int | None]
PRODUCTS: Mapping[str, tuple[int, int]] = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
"""Matrix products by numpy's rules, and which inputs are multiplied."""


def fitting(site: OpenSite, ids: Sequence[int | None]) -> Ids:
    """The inputs of a call, cut to the sizes that its operands share. Raises what `same` raises."""
    if site.op in PRODUCTS:
        return _matrices(site, ids)
    rule = RULES.get(site.op)
    return [*ids] if rule is None else rule(site, ids)


def _fit(site: OpenSite, ids: Ids, at: int, whole: Numbers) -> None:
    if (id := ids[at]) is not None:
        ids[at] = fitted(site.values, id, whole)


def _matrices(site: OpenSite, ids: Sequence[int | None]) -> Ids:
    """Stacks of matrices; an operand of one axis is a row or a column."""
    found, (one, other) = [*ids], PRODUCTS[site.op]
    left, right = site.shape(one), site.shape(other)
    if not left or not right:
        return found
    inner = same(site.values, left[-1], right[-2] if len(right) > 1 else right[0])
    outer = broadcast(site.values, [left[:-2], right[:-2]])
    _fit(site, found, one, (*outer, *left[-2:-1], inner)[-len(left) :])
    _fit(site, found, other, (*outer, inner, right[-1])[-len(right) :] if len(right) > 1 else (inner,))
    return found


def _gemm(site: OpenSite, ids: Sequence[int | None]) -> Ids:
    """Gemm: two matrices, each perhaps transposed, and what is added to their product."""
    found = [*ids]
    left, right = site.shape(0), site.shape(1)
    if len(left) != 2 or len(right) != 2:
        return found
    across, down = bool(site.integer("transA", 0)), bool(site.integer("transB", 0))
    inner = same(site.values, left[not across], right[down])
    rows, columns = left[across], right[not down]
    if len(found) > 2 and found[2] is not None and len(site.shape(2)) <= 2:
        rows, columns = broadcast(site.values, [(rows, columns), site.shape(2)])
        _fit(site, found, 2, (rows, columns))
    _fit(site, found, 0, (inner, rows) if across else (rows, inner))
    _fit(site, found, 1, (columns, inner) if down else (inner, columns))
    return found


def _einsum(site: OpenSite, ids: Sequence[int | None]) -> Ids:
    """Einsum: one size for each letter, and for each axis of the ellipsis."""
    found = [*ids]
    terms = str(site.attrs.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    if len(terms) != len(found):
        return found
    labels = [_labels(term, len(site.shape(at))) for at, term in enumerate(terms)]
    sizes: dict[str, Number] = {}
    for at, letters in enumerate(labels):
        for letter, dim in zip(letters, site.shape(at), strict=False):
            before = sizes.get(letter, dim)
            sizes[letter] = dim if before == 1 else before if dim == 1 else same(site.values, before, dim)
    for at, letters in enumerate(labels):
        shape = site.shape(at)
        if len(letters) == len(shape):
            _fit(site, found, at, tuple(sizes[each] if each else dim for each, dim in zip(letters, shape, strict=True)))
    return found


def _labels(term: str, rank: int) -> list[str]:
    """The letter of each axis of an operand, counted for those of an ellipsis from the last one."""
    before, dots, after = term.partition("...")
    between = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{at}" for at in range(max(between, 0), 0, -1)), *after]


RULES: Mapping[str, Callable[[OpenSite, Sequence[int | None]], Ids]] = {"Einsum": _einsum, "Gemm": _gemm}
