"""Webhooks of a server, and what their receiver needs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import UsageError
from tilewright.http import Http
from tilewright.names import plain_id

PAGE = 200
TOLERANCE_S = 300.0
"""How old, or how far ahead, a message may be."""


@dataclass(frozen=True)
class Webhook:
    """An address that is told when jobs end.

    states  of jobs that it is told of; empty: all ends
    secret  what messages are signed with; empty but in the answer that made it
    """

    id: str
    url: str
    states: tuple[str, ...]
    said: Mapping[str, Any] = field(repr=False)
    secret: str = field(default="", repr=False)

    @property
    def state(self) -> str:
        """`unverified` until its receiver has answered the challenge, `verified`, `disabled`; empty: not said."""
        return str(self.said.get("state", ""))

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Webhook:
        """Raises KeyError when the answer is no webhook."""
        return cls(said["id"], said["url"], tuple(said.get("states") or ()), said, said.get("secret", ""))


class Webhooks:
    """The part of `Client` that is about webhooks."""

    _http: Http

    def make_webhook(self, url: str, *, states: Sequence[str] = (), secret: str = "") -> Webhook:
        """Have the ends of jobs sent to `url`; `secret` of the answer is told nowhere else.

        The first message is of the type `webhook.challenge`; others follow once it was answered with its
        `data.challenge`.

        states  only jobs that end so, of SUCCEEDED, FAILED, CANCELLED; empty: all
        """
        body = {"url": url, "states": list(states), **({"secret": secret} if secret else {})}
        return Webhook.from_json(self._http.json("POST", "/webhooks", json=body))

    def webhooks(self) -> list[Webhook]:
        """All of the caller's owner, newest first."""
        return [Webhook.from_json(said) for said in self._http.json("GET", "/webhooks")["webhooks"]]

    def delete_webhook(self, webhook: Webhook | str) -> None:
        """Send nothing more there."""
        self._http.request("DELETE", f"/webhooks/{_id(webhook)}")

    def try_webhook(self, webhook: Webhook | str) -> dict[str, Any]:
        """Send it something that tells of no job, or its challenge again; the delivery, as the server says it."""
        return self._http.json("POST", f"/webhooks/{_id(webhook)}/test")

    def deliveries(self, webhook: Webhook | str, *, limit: int = 0) -> Iterator[dict[str, Any]]:
        """What was sent there or waits, newest first; `limit` 0: all that is kept."""
        return self._http.pages(f"/webhooks/{_id(webhook)}/deliveries", "deliveries", {}, limit, PAGE)


def verified(
    body: bytes, headers: Mapping[str, str], secret: str, *, tolerance_s: float = TOLERANCE_S
) -> dict[str, Any]:
    """What a message to a webhook says, once its signature and age are those of one that the server has just sent.

    headers  of the request, by their names in whatever letters
    secret   as `make_webhook` told it

    Raises `UsageError` for anything else. The same message may come twice: `webhook-id` tells.
    """
    given = {name.lower(): value for name, value in headers.items()}
    sent_id, at, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (at.isascii() and at.isdigit()) or abs(time.time() - int(at)) > tolerance_s:
        raise UsageError("the message is too old, or does not say how old it is", fix="answer it with 400")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = hmac.new(key, b".".join((sent_id.encode(), at.encode(), body)), hashlib.sha256).digest()
    known = [one.partition(",")[2] for one in signatures.split() if one.startswith("v1,")]
    if not any(hmac.compare_digest(base64.b64encode(expected), one.encode()) for one in known):
        raise UsageError("the message's signature is not that of this secret", fix="answer it with 400")
    found: dict[str, Any] = json.loads(body)
    return found


def _id(webhook: Webhook | str) -> str:
    return webhook.id if isinstance(webhook, Webhook) else plain_id(webhook, "webhook")
