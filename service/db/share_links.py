"""Rows of links that open one job. Every function works inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column

from service.db.engine import clock
from service.db.models import Job, Owner, Row, new_id


class ShareLink(Row):
    """A link that opens one job for whoever has it; its text is signed and is not kept."""

    __tablename__ = "share_links"
    __table_args__ = (sa.Index("ix_share_links_job_id_id", "job_id", "id"),)

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=new_id)
    owner_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("owners.id", ondelete="CASCADE"), index=True)
    job_id: Mapped[uuid.UUID] = mapped_column(sa.ForeignKey("jobs.id", ondelete="CASCADE"))
    download: Mapped[bool]
    """Whether it opens the artifact's file, too."""
    created_at: Mapped[float] = mapped_column(default=clock())
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]


@dataclass(frozen=True)
class Known:
    """A link, its owner and the artifact of its job, at the time `now` (seconds since 1970) of the database."""

    link: ShareLink
    owner: Owner
    artifact: uuid.UUID | None
    now: float


def by_id(session: Session, link_id: uuid.UUID) -> Known | None:
    """The link of any owner, whether it is valid or not."""
    query = sa.select(ShareLink, Owner, Job.artifact_id, clock()).join(Owner, Owner.id == ShareLink.owner_id)
    row = session.execute(query.join(Job, Job.id == ShareLink.job_id).where(ShareLink.id == link_id)).first()
    return None if row is None else Known(row[0], row[1], row[2], row[3])


def of_job(session: Session, job_id: uuid.UUID) -> Sequence[ShareLink]:
    """Of a job, newest first, those that have ended too."""
    query = sa.select(ShareLink).where(ShareLink.job_id == job_id)
    return session.scalars(query.order_by(ShareLink.id.desc())).all()


def one_of_job(session: Session, job_id: uuid.UUID, link_id: uuid.UUID) -> ShareLink | None:
    """The job's link, or None."""
    return session.scalar(sa.select(ShareLink).where(ShareLink.id == link_id, ShareLink.job_id == job_id))
