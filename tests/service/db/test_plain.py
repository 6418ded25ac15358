from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from service.db.plain import REPLACEMENT, dumps, storable

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner),
    max_leaves=10,
)


@given(anything)
def test_every_value_becomes_json_that_databases_take(value: object) -> None:
    text = dumps(value)
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text) == storable(value) == storable(storable(value))
    json.dumps(json.loads(text), ensure_ascii=False).encode()


def test_what_is_storable_stays_as_it_is() -> None:
    value = {"a": [1, 2.5, "é😀", None, True]}
    assert storable(value) == value


def test_what_is_not_is_replaced() -> None:
    assert storable("a\0b\ud800") == f"a{REPLACEMENT}b{REPLACEMENT * 3}"
    assert storable([math.nan, math.inf, 1.0]) == [None, None, 1.0]
