"""Keys, owners and the audit log of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

from tilewright.errors import UsageError
from tilewright.http import Http
from tilewright.names import id_of

PAGE = 200
FILTERS = ("owner", "verb", "outcome", "object", "key", "since", "until")
"""What entries of the audit log can be asked for by; times are RFC 3339."""
QUOTAS = ("stored_bytes", "queued_jobs", "concurrent_jobs", "device_seconds")


@dataclass(frozen=True)
class Key:
    """A key, but for its text, which only `NewKey` has.

    role   reader, compiler, manager or operator
    state  valid, expired or revoked
    """

    id: str
    owner: str
    label: str
    role: str
    state: str
    expires_at: str | None
    last_used_at: str | None
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """Raises KeyError when the answer is of another kind."""
        return cls(**cls._fields(said))

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        names = ("id", "owner", "label", "role", "state", "expires_at", "last_used_at")
        return {**{name: said[name] for name in names}, "said": said}


@dataclass(frozen=True)
class NewKey(Key):
    """A key that was made just now; `text` cannot be asked for again."""

    text: str = field(repr=False)

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._fields(said), "text": said["key"]}


class Owners:
    """The part of `Client` that is about keys, owners and who did what."""

    _http: Http

    def me(self) -> dict[str, Any]:
        """Whose key this is: `owner`, `key`, and `quotas` with limits and what is used."""
        return self._http.json("GET", "/me")

    def keys(self, *, owner: str = "", limit: int = 0) -> Iterator[Key]:
        """Keys newest first, of the caller, or for an operator of any owner; `limit` 0: all."""
        where = {"owner": owner} if owner else {}
        return map(Key.from_json, self._http.pages("/keys", "keys", where, limit, PAGE))

    def make_key(
        self,
        *,
        label: str = "",
        role: str = "compiler",
        scopes: Sequence[str] = (),
        expires_at: str = "",
        owner: str = "",
    ) -> NewKey:
        """A new key, which allows no more than the one in use and ends no later.

        scopes      instead of a role: read, compile, keys, admin
        expires_at  RFC 3339
        """
        body: dict[str, Any] = {"label": label, "role": role}
        body |= {"scopes": list(scopes)} if scopes else {}
        body |= {"expires_at": expires_at} if expires_at else {}
        body |= {"owner": owner} if owner else {}
        return NewKey.from_json(self._http.json("POST", "/keys", json=body))

    def rotate_key(self, key: Key | str, *, grace_s: float = 0.0, expires_at: str = "") -> NewKey:
        """A new key in the place of another, which stays valid for `grace_s` seconds."""
        body = {"grace_s": grace_s, **({"expires_at": expires_at} if expires_at else {})}
        return NewKey.from_json(self._http.json("POST", f"/keys/{_key_id(key)}/rotate", json=body))

    def revoke_key(self, key: Key | str) -> Key:
        """End a key; asking again changes nothing."""
        return Key.from_json(self._http.json("DELETE", f"/keys/{_key_id(key)}", repeat=True))

    def owners(self, *, limit: int = 0) -> Iterator[dict[str, Any]]:
        """All owners by name, for an operator; `limit` 0: all."""
        return self._http.pages("/owners", "owners", {}, limit, PAGE)

    def owner(self, name: str) -> dict[str, Any]:
        """One owner with its limits and what it has, for an operator."""
        return self._http.json("GET", _path(name))

    def make_owner(self, name: str, /, **quotas: float | None) -> dict[str, Any]:
        """A new owner, without a key; `quotas` grants any of `QUOTAS`."""
        return self._http.json("POST", "/owners", json={"name": name, "quotas": _checked(quotas)})

    def change_owner(self, name: str, /, *, suspended: bool | None = None, **quotas: float | None) -> dict[str, Any]:
        """Suspend an owner or let it in again, and grant it any of `QUOTAS`: 0 is no limit, None the server's."""
        body = {"suspended": suspended, "quotas": _checked(quotas)}
        return self._http.json("PATCH", _path(name), json=body, repeat=True)

    def delete_owner(self, name: str, *, confirm: str) -> dict[str, Any]:
        """Delete an owner with all that is its own; `confirm` repeats the name. What the server says of it."""
        return self._http.json("DELETE", _path(name), params={"confirm": confirm})

    def audit(self, /, *, limit: int = 0, **where: str) -> Iterator[dict[str, Any]]:
        """Who did what, newest first; `where` fixes any of `FILTERS`, `limit` 0: all."""
        if unknown := sorted(set(where) - set(FILTERS)):
            raise UsageError(f"entries have no {unknown[0]!r}", fix=f"filter by {', '.join(FILTERS)}")
        return self._http.pages("/audit", "entries", where, limit, PAGE)


def _key_id(key: Key | str) -> str:
    return key.id if isinstance(key, Key) else id_of(key)


def _path(name: str) -> str:
    """Raises `UsageError` for what is no name."""
    if not name or "/" in name or name in (".", ".."):
        raise UsageError(f"{name!r} is no name of an owner", fix="list owners with `tilewright owners`")
    return f"/owners/{quote(name, safe='')}"


def _checked(quotas: Mapping[str, float | None]) -> dict[str, float | None]:
    if unknown := sorted(set(quotas) - set(QUOTAS)):
        raise UsageError(f"there is no quota {unknown[0]!r}", fix=f"use some of {', '.join(QUOTAS)}")
    return dict(quotas)
