"""Which tests run on both databases."""

from __future__ import annotations

import pytest

any_database = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
"""On a test that asks the database for nothing but what other tests, which run on both, ask as well.

All others run on SQLite and on PostgreSQL: whatever reads, writes or locks in a way of its own, and whatever threads do
at once. What is refused before the database is asked, or is about what a request or an answer looks like, is the same
on both.
"""
