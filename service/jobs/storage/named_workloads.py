"""Workloads of models that owners give names to, and what a compilation or a benchmark takes of one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from compiler.contract import BenchmarkOptions, CompileOptions
from compiler.errors import OptionsError
from service.db import jobs, named_workloads, usage
from service.db.engine import Database
from service.db.named_workloads import NamedWorkload
from service.errors import NotFound, QuotaExceeded
from service.jobs.accounts import audit, quotas
from service.jobs.storage import models

MOST = 100
"""Workloads of one model."""


def put(db: Database, owner: uuid.UUID, model: str, name: str, dims: Mapping[str, int]) -> NamedWorkload:
    """The workload with these sizes, made or changed. Raises `NotFound`, `QuotaExceeded`, and as `quotas.opened`."""
    with db.write() as session:
        quotas.opened(session, owner)
        models.required(session, owner, model)
        row = named_workloads.named(session, owner, model, name)
        if row is None:
            if len(named_workloads.of_model(session, owner, model)) >= MOST:
                raise QuotaExceeded(f"this model has {MOST} workloads already", fix="delete one of them")
            row = NamedWorkload(owner_id=owner, model_digest=model, name=name)
            session.add(row)
        row.dims = dict(sorted(dims.items()))
        row.changed_at = usage.now(session)
        session.flush()
        audit.note(session, "put", _path(model, name))
        session.refresh(row)
        return row


def listed(db: Database, owner: uuid.UUID, model: str) -> Sequence[NamedWorkload]:
    """Those of the owner's model, by name. Raises `NotFound`."""
    with db.read() as session:
        models.required(session, owner, model)
        return named_workloads.of_model(session, owner, model)


def find(db: Database, owner: uuid.UUID, model: str, name: str) -> NamedWorkload:
    """One of the owner's model. Raises `NotFound`."""
    with db.read() as session:
        models.required(session, owner, model)
        return _required(session, owner, model, name)


def delete(db: Database, owner: uuid.UUID, model: str, name: str) -> None:
    """Forget it; jobs that used it keep its sizes in their options. Raises `NotFound`."""
    with db.delete() as session:
        models.required(session, owner, model)
        session.delete(_required(session, owner, model, name))
        audit.note(session, "delete", _path(model, name))


def compiled_for(db: Database, owner: uuid.UUID, model: str, name: str, options: CompileOptions) -> CompileOptions:
    """The options with the workload's sizes: of a range its `opt`; fixed, where `dims` says nothing of a dimension.

    Raises `NotFound`, and `OptionsError` for a size that `dims` excludes and for several bindings.
    """
    dims = find(db, owner, model, name).dims
    plain = options.to_json()
    said: Any = plain["dims"]
    if isinstance(said, list):
        raise OptionsError(
            f"dims has several bindings, and workload {name} is one more", fix="give one binding, or leave workload out"
        )
    return CompileOptions.from_json(plain | {"dims": said | {dim: _within(dim, dims[dim], said, name) for dim in dims}})


def timed_at(
    db: Database, owner: uuid.UUID, artifacts: Sequence[uuid.UUID], name: str, options: BenchmarkOptions
) -> BenchmarkOptions:
    """The options with the sizes of the workload of this name that the artifacts' models have.

    Raises `NotFound`, and `OptionsError` where options name sizes or a binding too, or models have different ones.
    """
    if options.dims or options.binding is not None:
        raise OptionsError("workload is given together with dims or binding", fix="name sizes in one of them only")
    with db.read() as session:
        makers = [jobs.by_artifact(session, owner, one) for one in artifacts]
        digests = dict.fromkeys(maker.model_digest for maker in makers if maker is not None and maker.model_digest)
        rows = [row for one in digests if (row := named_workloads.named(session, owner, one, name)) is not None]
    if not rows:
        raise NotFound(f"no model of these artifacts has a workload {name}", fix="make it with PUT, or name another")
    if any(row.dims != rows[0].dims for row in rows):
        raise OptionsError(
            f"workload {name} has different sizes for the models of these artifacts",
            fix="give one of them the other's sizes, or name sizes in dims",
            details={row.model_digest: row.dims for row in rows},
        )
    return BenchmarkOptions.from_json(options.to_json() | {"dims": rows[0].dims})


def _within(dim: str, size: int, said: Mapping[str, Any], name: str) -> Any:
    given = said.get(dim, size)
    if isinstance(given, Mapping) and given["min"] <= size <= given["max"]:
        return {**given, "opt": size}
    if given != size:
        raise OptionsError(
            f"workload {name} has {dim}={size}, and dims has {dim}={given}",
            fix=f"leave {dim} out of dims, or give it a range that holds {size}",
        )
    return size


def _required(session: Session, owner: uuid.UUID, model: str, name: str) -> NamedWorkload:
    found = named_workloads.named(session, owner, model, name)
    if found is None:
        raise NotFound(f"model {model} has no workload {name}", fix="list them with GET /models/{digest}/workloads")
    return found


def _path(model: str, name: str) -> str:
    return f"/models/{model}/workloads/{name}"
