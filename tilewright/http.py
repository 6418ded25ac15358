"""Requests to one server: repeated where that is safe, and an answer that is a problem becomes an error."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tilewright.errors import RequestRefused, ServerUnreachable, UsageError
from tilewright.loops import pause

ATTEMPTS = 5
"""Of a request that is safe to repeat."""
LONGEST_PAUSE_S = 20.0
"""Between two attempts, whatever the server's `Retry-After` asks for."""
HOPELESS_S = 600.0
"""A 429 that says to come back later than this, such as next month, is not asked again."""
BUSY = frozenset({429, 502, 503, 504})
"""Statuses that say: not now. Nothing was done, or what was done is found again by its idempotency key."""
SAFE = frozenset({"GET", "HEAD"})
IDEMPOTENCY_KEY = "Idempotency-Key"
CA_FILE = "TILEWRIGHT_CA_FILE"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Content = Callable[[], Iterable[bytes]]
"""The body of a request, in pieces; called for each attempt."""


@dataclass(frozen=True)
class Http:
    """Connections to one server. Every method raises `ServerUnreachable` and `RequestRefused`.

    pause_s  before the second attempt; doubled for each further one
    """

    client: httpx.Client
    url: str
    pause_s: float

    @classmethod
    def open(cls, url: str, key: str, transport: httpx.BaseTransport | None, timeout_s: float, pause_s: float) -> Http:
        """Opens no connection yet.

        Raises `ServerUnreachable` for an address that is none, and `UsageError` as `trusted` does.
        """
        address = url.rstrip("/")
        try:
            client = httpx.Client(
                base_url=address,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                # Connections are made soon or not at all; an answer may take as long as the disk of the server.
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
                transport=transport,
                trust_env=uses_environment(address),
                verify=trusted(address),
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ServerUnreachable(f"{url!r} is no address: {error}", fix="give one as http://host:port") from error
        return cls(client, address, pause_s)

    def request(
        self, method: str, path: str, *, content: Content | None = None, repeat: bool | None = None, **request: Any
    ) -> httpx.Response:
        """The answer of success, read whole.

        content  the body, called for each attempt
        repeat   whether a second attempt does no harm; None: for GET, HEAD and what carries an idempotency key
        """
        headers = request.get("headers") or {}
        again = method in SAFE or IDEMPOTENCY_KEY in headers if repeat is None else repeat
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or not again
            try:
                response = self.client.request(method, path, content=content and content(), **request)
            except httpx.UnsupportedProtocol as error:
                raise self.unreachable(str(error)) from error
            except httpx.TransportError as error:
                if last:
                    raise self.unreachable(str(error) or type(error).__name__) from error
                self.pause(attempt)
                continue
            hopeless = response.status_code == 429 and _asked(response.headers) > HOPELESS_S
            if response.status_code not in BUSY or last or hopeless:
                break
            self.pause(attempt, response.headers)
        self.check(response)
        return response

    def json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The JSON object that is the answer."""
        return self.parsed(self.request(method, path, **request))

    def parsed(self, response: httpx.Response) -> dict[str, Any]:
        """The JSON object in an answer."""
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self.unreachable("its answer is not a JSON object")
        return answer

    def exists(self, path: str) -> bool:
        """Whether HEAD finds something there."""
        try:
            self.request("HEAD", path)
        except RequestRefused as error:
            if error.status == 404:
                return False
            raise
        return True

    def pages(self, path: str, name: str, where: Mapping[str, Any], limit: int, size: int) -> Iterator[dict[str, Any]]:
        """What a list holds under `name`, page by page of `size`; `limit` 0: all."""
        cursor, left = "", limit or None
        while True:
            wanted = min(size, left) if left else size
            page = self.json("GET", path, params={**where, "limit": wanted, **({"cursor": cursor} if cursor else {})})
            found = page.get(name)
            if not isinstance(found, list):
                raise self.unreachable(f"its answer has no list {name!r}")
            yield from found
            cursor = page.get("next_cursor") or ""
            if left is not None:
                left -= len(found)
            if not cursor or left == 0:
                return

    def pause(self, attempt: int, headers: Mapping[str, str] | None = None) -> None:
        """Wait before the attempt after this one.

        As long as `Retry-After` says, else twice as long each time, with jitter.
        """
        asked_s = _asked(headers or {})
        if asked_s >= 0 and self.pause_s > 0:
            pause(min(asked_s, LONGEST_PAUSE_S))
        else:
            pause(min(self.pause_s * 2 ** (attempt - 1), LONGEST_PAUSE_S) * random.uniform(0.75, 1.25))

    def check(self, response: httpx.Response) -> None:
        """Raises `RequestRefused` with the problem document of an error."""
        if response.is_success:
            return
        response.read()
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        if not isinstance(problem, dict) or "code" not in problem:
            raise RequestRefused(
                f"{response.url.path} answered {response.status_code}",
                fix=f"check that {self.url} is Tilewright's",
                status=response.status_code,
            )
        lines = [
            problem.get("detail", ""),
            *(f"  - {refusal.get('reason')}" for refusal in problem.get("refusals", ())),
        ]
        raise RequestRefused("\n".join(lines), fix=problem.get("fix", ""), problem=problem, status=response.status_code)

    def unreachable(self, reason: str) -> ServerUnreachable:
        """The error for a server that does not answer, or not as one of ours."""
        return ServerUnreachable(
            f"{self.url} does not answer: {reason}", fix="start it with `tilewright up`, or check TILEWRIGHT_URL"
        )


def uses_environment(url: str) -> bool:
    """Whether proxies of the environment count: one cannot reach this machine's own loopback."""
    return httpx.URL(url).host not in _LOOPBACK


def trusted(url: str) -> ssl.SSLContext | bool:
    """Who may sign a server's certificate: the file (PEM) that TILEWRIGHT_CA_FILE names, else whom all programs trust.

    Nobody where `url` is plain HTTP: reading whom all programs trust takes as long as a request. Raises `UsageError`
    for a file that holds no certificate.
    """
    if url.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    named = os.environ.get(CA_FILE, "")
    if not named:
        return True
    try:
        return ssl.create_default_context(cafile=named)
    except OSError as error:
        raise UsageError(f"{CA_FILE} names {named}: {error}", fix="name a file of certificates in PEM") from None


def _asked(headers: Mapping[str, str]) -> float:
    """Seconds that `Retry-After` asks for; -1 when it says nothing of the kind."""
    asked = headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else -1.0
