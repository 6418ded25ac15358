"""How many requests each owner may send, by whichever of its keys: a token bucket for each, in this process.

What is left is told in `RateLimit` and `RateLimit-Policy`, as draft-ietf-httpapi-ratelimit-headers has them.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.errors import RateLimited

MOST_KEYS = 10_000
"""Buckets that are kept; one that was not asked for longest is full by then, or its owner begins anew."""

Header = tuple[bytes, bytes]


@dataclass
class _Bucket:
    left: float
    at: float


class Rates:
    """Buckets of `burst` requests that fill at `per_s` requests a second.

    exceeded  what is said of who asks for more, and how to mend it
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        exceeded: tuple[str, str] | None = None,
    ) -> None:
        self._exceeded = exceeded or (
            f"this owner has sent more than {per_s:g} requests a second",
            "wait for as long as Retry-After says, and follow jobs at /jobs/{id}/events instead of asking",
        )
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._policy = (b"ratelimit-policy", b'"owner";q=%d;w=%d' % (burst, math.ceil(burst / per_s)))

    def spend(self, key: str) -> Sequence[Header]:
        """Take one request from the bucket of a key; the headers of its answer. Raises `RateLimited`."""
        now = self._clock()
        bucket = self._buckets.pop(key, None) or _Bucket(self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > MOST_KEYS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
        bucket.at = now
        if bucket.left < 1:
            wait_s = max(1, math.ceil((1 - bucket.left) / self._per_s))
            raise RateLimited(
                self._exceeded[0],
                fix=self._exceeded[1],
                details={"retry_after_s": wait_s, "requests_per_s": self._per_s, "burst": self._burst},
            )
        bucket.left -= 1
        return (self._policy, self._standing(bucket.left))

    def refusal(self) -> Sequence[Header]:
        """The headers of the answer to a request for which nothing was left."""
        return (self._policy, self._standing(0))

    def _standing(self, left: float) -> Header:
        return (b"ratelimit", b'"owner";r=%d;t=%d' % (left, math.ceil((self._burst - left) / self._per_s)))
