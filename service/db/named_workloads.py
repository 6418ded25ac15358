"""Workloads of models that owners give names to. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.db.engine import clock
from service.db.models import Row


class NamedWorkload(Row):
    """The sizes of a model's open dimensions in one use of it; gone with its model."""

    __tablename__ = "named_workloads"
    __table_args__ = (
        sa.ForeignKeyConstraint(
            ["owner_id", "model_digest"],
            ["models.owner_id", "models.digest"],
            name="fk_named_workloads_owner_id_models",
            ondelete="CASCADE",
        ),
    )

    owner_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    model_digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    dims: Mapped[dict[str, Any]]
    """Size (an int) by name of the dimension."""
    created_at: Mapped[float] = mapped_column(default=clock())
    changed_at: Mapped[float] = mapped_column(default=clock())


def named(session: Session, owner: uuid.UUID, model: str, name: str) -> NamedWorkload | None:
    """The owner's workload of this model, or None."""
    return session.get(NamedWorkload, (owner, model, name))


def of_model(session: Session, owner: uuid.UUID, model: str) -> Sequence[NamedWorkload]:
    """By name."""
    query = sa.select(NamedWorkload).where(NamedWorkload.owner_id == owner, NamedWorkload.model_digest == model)
    return session.scalars(query.order_by(NamedWorkload.name)).all()
