"""Links that open one job for whoever has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.http import Http
from tilewright.names import plain_id


@dataclass(frozen=True)
class Share:
    """A link to a job.

    state  valid, expired or revoked
    url    of the page that it opens; empty but in the answer that made it
    """

    id: str
    job: str
    state: str
    expires_at: str
    download: bool
    said: Mapping[str, Any] = field(repr=False)
    url: str = field(default="", repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any], server: str = "") -> Share:
        """Raises KeyError when the answer is no link."""
        url = server.rstrip("/") + said["link"] if "link" in said else ""
        return cls(said["id"], said["job"], said["state"], said["expires_at"], said["download"], said, url)


class Shares:
    """The part of `Client` that is about links to jobs."""

    _http: Http
    url: str

    def share(self, job: str, *, expires_at: str = "", download: bool = False) -> Share:
        """A new link that opens the job's page, read only; its `url` is told nowhere else.

        expires_at  RFC 3339, within a year; empty: in a week
        download    whether it opens the artifact's file, too
        """
        body = {"download": download, **({"expires_at": expires_at} if expires_at else {})}
        return Share.from_json(self._http.json("POST", f"/jobs/{plain_id(job, 'job')}/shares", json=body), self.url)

    def shares(self, job: str) -> list[Share]:
        """Of a job, newest first, those that have ended too."""
        said = self._http.json("GET", f"/jobs/{plain_id(job, 'job')}/shares")
        return [Share.from_json(one) for one in said["shares"]]

    def revoke_share(self, job: str, share: Share | str) -> Share:
        """From now on it opens nothing; asking again changes nothing."""
        which = share.id if isinstance(share, Share) else plain_id(share, "link")
        path = f"/jobs/{plain_id(job, 'job')}/shares/{which}"
        return Share.from_json(self._http.json("DELETE", path, repeat=True))
