"""Batches: what one request with a list of options asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.http import Http
from tilewright.names import id_of, plain_id
from tilewright.wire import Job, Work

PAGE = 200


@dataclass(frozen=True)
class Batch:
    """Jobs of one request: how many are in each of `states`, and whether all have `ended`.

    jobs  in the order of the request; empty in lists
    """

    id: str
    model: str
    states: Mapping[str, int]
    ended: bool
    jobs: tuple[Job, ...]
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Batch:
        """Raises KeyError when the answer is no batch."""
        jobs = tuple(Job.from_json(one) for one in said.get("jobs") or ())
        return cls(said["id"], said["model"], said["states"], bool(said["ended"]), jobs, said)


class Batches:
    """The part of `Client` that is about batches."""

    _http: Http

    def batches(self, *, limit: int = 0) -> Iterator[Batch]:
        """The caller's batches, newest first, without their jobs; `limit` 0: all."""
        return map(Batch.from_json, self._http.pages("/batches", "batches", {}, limit, PAGE))

    def batch(self, batch: Batch | str) -> Batch:
        """A batch as it is now, with its jobs; `Job.batch` names that of a job."""
        return Batch.from_json(self._http.json("GET", f"/batches/{_id(batch)}"))

    def cancel_batch(self, batch: Batch | str) -> Batch:
        """Ask for the end of all of its jobs that have not ended; what runs is stopped within seconds."""
        return Batch.from_json(self._http.json("POST", f"/batches/{_id(batch)}/cancel", repeat=True))

    def retry_batch(self, batch: Batch | str) -> Batch:
        """Compile again what of it failed or was cancelled, as new jobs of the batch; asking again makes no more."""
        return Batch.from_json(self._http.json("POST", f"/batches/{_id(batch)}/retry", repeat=True))

    def compare(self, jobs: Batch | Sequence[Work | str]) -> dict[str, Any]:
        """Compilations beside each other: `jobs`, each with `options` that differ and `figures`, and the `fastest`."""
        if isinstance(jobs, Batch):
            return self._http.json("GET", f"/batches/{jobs.id}/comparison")
        return self._http.json("GET", "/comparison", params={"job": [id_of(job) for job in jobs]})


def _id(batch: Batch | str) -> str:
    return batch.id if isinstance(batch, Batch) else plain_id(batch, "batch")
