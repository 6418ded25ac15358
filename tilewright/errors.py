"""Every way in which using a Tilewright server can fail, and the exit status of the command line for each.

ClientError
├── JobFailed            1  a job failed or was cancelled; the reason is in `problem`
├── UsageError           2  what was given makes no sense: a file that is not there, a malformed option
├── ServerUnreachable    3  no server is known, or it does not answer
├── RequestRefused       4  the server answered with a problem document; `status` is the HTTP status
├── BrokenDownload       5  the bytes that arrived are not those that the server announced
├── NotGenuine           5  an artifact is not the one that a signed statement is about, or the signature is another's
└── WaitTimeout          6  the time to wait for a job was over; the job goes on
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class ClientError(Exception):
    """Root of the tree. `message` is one sentence; `fix` says what to do."""

    exit_status: ClassVar[int] = 1
    code: ClassVar[str] = "client_error"

    def __init__(
        self, message: str, fix: str = "", problem: Mapping[str, Any] | None = None, *, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.problem = dict(problem or {})
        self.status = status

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: code, message, fix, and the server's own words, if any."""
        code = self.problem.get("code", self.code)
        return {"code": code, "message": self.message, "fix": self.fix, "problem": self.problem or None}


class JobFailed(ClientError):
    code = "job_failed"


class UsageError(ClientError):
    exit_status = 2
    code = "usage"


class ServerUnreachable(ClientError):
    exit_status = 3
    code = "server_unreachable"


class RequestRefused(ClientError):
    exit_status = 4
    code = "request_refused"


class BrokenDownload(ClientError):
    exit_status = 5
    code = "broken_download"


class NotGenuine(ClientError):
    exit_status = 5
    code = "not_genuine"


class WaitTimeout(ClientError):
    exit_status = 6
    code = "wait_timeout"
