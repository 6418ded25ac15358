"""A queue of requests on this machine, for a time without a server: sent later, each once, in their order.

A request is a file in the user's state folder with an idempotency key of its own. So one that was sent and not taken
off the queue, because the answer was lost, makes no second job when it is sent again.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import RequestRefused, UsageError
from tilewright.files import whole
from tilewright.package import package

if TYPE_CHECKING:
    from tilewright.client import Client
    from tilewright.wire import Job


@dataclass(frozen=True)
class Request:
    """A compilation to ask for.

    model    the file, zip or folder, whose content must be what `digest` says when it is sent
    said     name, note and tags of the job
    refused  what a server said against it; empty: it was not sent yet
    """

    id: str
    model: str
    digest: str
    options: Mapping[str, Any]
    said: Mapping[str, Any]
    data: Sequence[str]
    added: float
    refused: str = ""


def place() -> Path:
    """The folder of the user's queue."""
    home = os.environ.get("XDG_STATE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"
    return root / "tilewright" / "queue"


class Queue:
    """The requests in a folder, oldest first."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or place()

    def add(
        self, model: str | Path, options: Mapping[str, Any], said: Mapping[str, Any], data: Sequence[str | Path] = ()
    ) -> Request:
        """Keep a request. Raises `UsageError` for a model that cannot be read, and where it cannot be written."""
        packed = package(model, data)
        made = Request(
            id=f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}",
            model=str(Path(model).absolute()),
            digest=packed.digest,
            options=dict(options),
            said=dict(said),
            data=[str(Path(one).absolute()) for one in data],
            added=time.time(),
        )
        self._write(made)
        return made

    def __iter__(self) -> Iterator[Request]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield Request(**json.loads(path.read_text()))
            except (OSError, ValueError, TypeError) as error:
                raise UsageError(f"{path} is no request: {error}", fix="delete the file") from error

    def drop(self, request: str) -> Request:
        """Take one off without sending it. Raises `UsageError` where there is none of this id."""
        for one in self:
            if one.id == request:
                self._path(one).unlink(missing_ok=True)
                return one
        raise UsageError(f"there is no request {request}", fix="see `tilewright queue`")

    def send(self, client: Client, sent: Callable[[Request, Job], None]) -> list[Request]:
        """Ask the server for all, oldest first; each is taken off once it is accepted, and then told of.

        What the server refuses, or whose model has changed, stays with the reason, and the others are sent; these are
        returned. Raises `ServerUnreachable` where there is none: what was not sent stays.
        """
        refused = []
        for one in list(self):
            try:
                job = self._send(client, one)
            except (RequestRefused, UsageError) as error:
                if isinstance(error, RequestRefused) and (error.status or 0) >= 500:
                    raise
                stays = Request(**{**asdict(one), "refused": error.message})
                self._write(stays)
                refused.append(stays)
                continue
            self._path(one).unlink(missing_ok=True)
            sent(one, job)
        return refused

    def _send(self, client: Client, one: Request) -> Job:
        if package(one.model, one.data).digest != one.digest:
            raise UsageError(
                f"{one.model} has changed since it was queued", fix="queue it again, and drop this request"
            )
        return client.compile(one.model, one.options, data=one.data, idempotency_key=f"queue-{one.id}", **one.said)

    def _write(self, request: Request) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be made: {error.strerror}", fix="set XDG_STATE_HOME") from error
        with whole(self._path(request)) as file:
            file.write(json.dumps(asdict(request), indent=1).encode())

    def _path(self, request: Request) -> Path:
        return self.folder / f"{request.id}.json"
