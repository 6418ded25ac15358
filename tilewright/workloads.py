"""Named workloads of models: sizes of their open dimensions in one use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.http import Http
from tilewright.names import digest_of, workload_name
from tilewright.wire import StoredModel


@dataclass(frozen=True)
class Workload:
    """The sizes of a model's open dimensions in one use of it.

    model  the digest of the model
    dims   by name of a dimension: its size
    """

    name: str
    model: str
    dims: Mapping[str, int]
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Workload:
        """Raises KeyError when the answer is no workload."""
        return cls(said["name"], said["model"], dict(said["dims"]), said)


class Workloads:
    """The part of `Client` that is about workloads of models."""

    _http: Http

    def put_workload(self, model: StoredModel | str, name: str, dims: Mapping[str, int]) -> Workload:
        """Make a workload of the model, or give it other sizes; compile and benchmark use it by its name.

        name  letters, digits and `._-`, at most 64, beginning with a letter or digit
        dims  by name of an open dimension: its size, at least 1
        """
        said = self._http.json("PUT", f"{_path(model)}/{workload_name(name)}", json={"dims": dict(dims)}, repeat=True)
        return Workload.from_json(said)

    def workloads(self, model: StoredModel | str) -> list[Workload]:
        """Of the model, by name."""
        return [Workload.from_json(one) for one in self._http.json("GET", _path(model))["workloads"]]

    def workload(self, model: StoredModel | str, name: str) -> Workload:
        """One of the model."""
        return Workload.from_json(self._http.json("GET", f"{_path(model)}/{workload_name(name)}"))

    def delete_workload(self, model: StoredModel | str, name: str) -> None:
        """Forget it; jobs that used it keep its sizes in their options."""
        self._http.request("DELETE", f"{_path(model)}/{workload_name(name)}")


def _path(model: StoredModel | str) -> str:
    return f"/models/{digest_of(model)}/workloads"
