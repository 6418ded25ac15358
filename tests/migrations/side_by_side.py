"""Whether programs of an earlier step of the history work on a later one: what they read and write is still there.

An older program names the columns that it knows in every statement. So a later step may add tables, columns that may
stay empty or have a default, and words to a CHECK, and must leave alone all that was there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import sqlalchemy as sa


def obstacles(old: sa.MetaData, new: sa.MetaData) -> list[str]:
    """What of `new` keeps programs from working that were made for `old`, both reflected from a database; sorted."""
    return sorted(_obstacles(old, new))


def _obstacles(old: sa.MetaData, new: sa.MetaData) -> Iterator[str]:
    for name, before in old.tables.items():
        if name == "alembic_version":
            continue
        after = new.tables.get(name)
        if after is None:
            yield f"{name} is gone"
            continue
        yield from _of_columns(before, after)
        checks, had = _checks(after), _checks(before)
        yield from (f"{key} allows less" for key, words in checks.items() if not had.get(key, set()) <= words)
        yield from (f"{key} is a new rule" for key in _rules(after, {*before.columns.keys()}) - _rules(before))


def _of_columns(before: sa.Table, after: sa.Table) -> Iterator[str]:
    for column in before.columns:
        now = after.columns.get(column.name)
        if now is None:
            yield f"{column} is gone"
        elif not _holds(now.type, column.type):
            yield f"{column} is {now.type}, not {column.type}"
        elif column.nullable and not now.nullable:
            yield f"{column} may no longer be empty"
    for column in after.columns:
        if column.name not in before.columns and not column.nullable and column.server_default is None:
            yield f"{column} is new and may not be empty"


def _holds(now: sa.types.TypeEngine[object], before: sa.types.TypeEngine[object]) -> bool:
    """Whether the type of now takes what the one before took: it is the same, or longer text."""
    if type(now) is type(before) and isinstance(now, sa.String) and isinstance(before, sa.String):
        return now.length is None or (before.length is not None and now.length >= before.length)
    return str(now) == str(before)


def _checks(table: sa.Table) -> dict[str, set[str]]:
    """The words that each CHECK (a column is one of ...) allows."""
    checks = (rule for rule in table.constraints if isinstance(rule, sa.CheckConstraint))
    return {str(rule.name): set(re.findall(r"'(\w+)'", str(rule.sqltext))) for rule in checks}


def _rules(table: sa.Table, of: Collection[str] | None = None) -> set[str]:
    """Every rule for rows but for what CHECKs allow, by what it says; of these columns alone, where they are given."""
    found = {str(rule.name) for rule in table.constraints if isinstance(rule, sa.CheckConstraint)}
    for rule in table.constraints:
        if not isinstance(rule, sa.schema.ColumnCollectionConstraint) or isinstance(rule, sa.CheckConstraint):
            continue
        names = rule.columns.keys()
        if of is not None and not {*names} & {*of}:
            continue
        if isinstance(rule, sa.ForeignKeyConstraint):
            targets = ", ".join(element.target_fullname for element in rule.elements)
            found.add(f"{table.name}: {', '.join(names)} -> {targets}")
        else:
            found.add(f"{table.name}: {type(rule).__name__} of {', '.join(names)}")
    unique = (index.columns.keys() for index in table.indexes if index.unique)
    return found | {f"{table.name}: unique {', '.join(names)}" for names in unique if of is None or {*names} & {*of}}
