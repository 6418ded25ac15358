"""The key that a request carries: in its `Authorization` header or, from the page, in a cookie.

A browser sends cookies by itself, also with requests that another page makes. `SameSite=Strict` keeps back those of
other sites, but a site is all ports of a host, and on a user's machine every port is another program. So a cookie
counts only for a request of the page's own origin, which browsers tell in headers that no script can set: Fetch
Metadata (W3C, section 2.1), and where that is missing the `Origin` of a request that changes something. It is the rule
of `net/http.CrossOriginProtection` (Go 1.25), but that without either header nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from service.errors import NotAllowed, NotAuthenticated

NAME = "tilewright_session"
SECURE_PREFIX = "__Host-"
"""A browser takes a cookie of such a name over TLS alone, for one host alone (RFC 6265bis, section 4.1.3.2)."""
READING = ("GET", "HEAD")
_TOKEN = re.compile(r"twb_[A-Za-z0-9_-]{20,200}")


def carried(scope: Scope) -> str:
    """The key of a request. Raises `NotAuthenticated` for none, `NotAllowed` for a cookie on another page's request."""
    headers = Headers(scope=scope)
    scheme, key = get_authorization_scheme_param(headers.get("authorization"))
    if scheme.lower() == "bearer" and key:
        return key
    token = "" if headers.get("authorization") else session_of(headers)
    if not token:
        raise NotAuthenticated("no API key was sent", fix="send Authorization: Bearer <key>")
    _demand_own_page(scope["method"], headers)
    return token


def session_of(headers: Headers) -> str:
    """The token of a session among the cookies, or an empty text."""
    kept = cookie_parser(headers.get("cookie", ""))
    return next((kept[name] for name in _names(headers) if _TOKEN.fullmatch(kept.get(name, ""))), "")


def set_cookie(scope: Scope, token: str) -> str:
    """The value of a `Set-Cookie` header that keeps a token until the browser ends; an empty one is forgotten."""
    headers = Headers(scope=scope)
    secure = is_secure(scope["scheme"], headers)
    name = next(name for name in _names(headers) if name.startswith(SECURE_PREFIX) is secure)
    parts = [f"{name}={token}", "Path=/", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, *(["Secure"] if secure else []), *([] if token else ["Max-Age=0"])])


def is_secure(scheme: str, headers: Headers) -> bool:
    """Whether the page came over TLS, be it by a proxy: then its origin says so."""
    return scheme == "https" or headers.get("origin", "").startswith("https://")


def _names(headers: Headers) -> Iterator[str]:
    """Of the cookie; two services on one host have two, for cookies go to every port."""
    port = headers.get("host", "").rpartition(":")[2]
    plain = f"{NAME}_{port}" if port.isdigit() else NAME
    yield SECURE_PREFIX + plain
    yield plain


def _demand_own_page(method: str, headers: Headers) -> None:
    reads = method in READING
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        own = site == "same-origin" or (reads and site == "none")  # none: the user typed the address
    elif origin is not None:
        own = urlsplit(origin).netloc == headers.get("host")
    else:
        own = reads
    if not own:
        raise NotAllowed(
            "a session of the page counts only for what the page itself asks",
            fix="send Authorization: Bearer <key>, without the cookie",
        )
