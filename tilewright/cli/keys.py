"""`tilewright me`, `keys` and `audit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    Json,
    ProfileName,
    Url,
    connect,
    console,
    failures,
    id_column,
    number_column,
    print_json,
    results,
    size,
    table,
    time_of,
)
from tilewright.cli.output import Key as GivenKey

if TYPE_CHECKING:
    from tilewright.owners import Key, NewKey

keys = typer.Typer(help="List, make, rotate and revoke API keys.", invoke_without_command=True)

KeyId = Annotated[str, typer.Argument(help="The id of a key, as `tilewright keys` lists it.")]
OwnerName = Annotated[str, typer.Option("--owner", help="Keys of this owner; needs an operator's key.")]
Until = Annotated[str, typer.Option("--expires", help="When the new key ends, RFC 3339.")]
Many = Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")]


def me(url: Url = "", key: GivenKey = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Show whose key is used, what it allows, and what is used of each limit. With `--json`: the same as an object."""
    with failures(as_json), connect(url, key, profile) as client:
        found = client.me()
    if as_json:
        print_json(found)
        return
    used = found["key"]
    print(f"owner {found['owner']}, role {used['role']}, key {used['id']} {used['label']}".rstrip())
    print(f"expires {time_of(used['expires_at']) or 'never'}")
    show_quotas(found["quotas"])


@keys.callback()
def list_keys(
    context: typer.Context,
    owner: OwnerName = "",
    limit: Many = 20,
    url: Url = "",
    key: GivenKey = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List keys, newest first. With `--json`: `{"keys": [...]}`."""
    if context.invoked_subcommand:
        return
    with failures(as_json), connect(url, key, profile) as client:
        _print_keys(list(client.keys(owner=owner, limit=limit)), as_json)


@keys.command("list")
def list_again(
    owner: OwnerName = "",
    limit: Many = 20,
    url: Url = "",
    key: GivenKey = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List keys, newest first. With `--json`: `{"keys": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        _print_keys(list(client.keys(owner=owner, limit=limit)), as_json)


@keys.command()
def make(
    label: Annotated[str, typer.Option("--label", help="For people.")] = "",
    role: Annotated[str, typer.Option("--role", help="reader, compiler, manager or operator.")] = "compiler",
    expires: Until = "",
    owner: OwnerName = "",
    url: Url = "",
    key: GivenKey = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Make a key and print it, this once. With `--json`: the key with its text in `key`."""
    with failures(as_json), connect(url, key, profile) as client:
        _print_new(client.make_key(label=label, role=role, expires_at=expires, owner=owner), as_json)


@keys.command()
def rotate(
    key_id: KeyId,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds for which the old key stays valid.")] = 0.0,
    expires: Until = "",
    url: Url = "",
    key: GivenKey = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Replace a key and print the new one, this once. With `--json`: the new key with its text in `key`."""
    with failures(as_json), connect(url, key, profile) as client:
        _print_new(client.rotate_key(key_id, grace_s=grace, expires_at=expires), as_json)


@keys.command()
def revoke(key_id: KeyId, url: Url = "", key: GivenKey = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """End a key. With `--json`: the key."""
    with failures(as_json), connect(url, key, profile) as client:
        ended = client.revoke_key(key_id)
        print_json(ended.said) if as_json else print(f"{ended.id} {ended.state}")


def audit(
    owner: OwnerName = "",
    verb: Annotated[str, typer.Option("--verb", help="Such as create, delete, revoke or login.")] = "",
    outcome: Annotated[str, typer.Option("--outcome", help="done, or the code of a problem.")] = "",
    thing: Annotated[str, typer.Option("--object", help="A path of the API, such as /keys/ID.")] = "",
    made_with: Annotated[str, typer.Option("--with", help="The id of the key that was used.")] = "",
    since: Annotated[str, typer.Option("--since", help="Not before this time, RFC 3339.")] = "",
    until: Annotated[str, typer.Option("--until", help="Before this time, RFC 3339.")] = "",
    limit: Many = 20,
    url: Url = "",
    key: GivenKey = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List who changed what, and who was refused, newest first. With `--json`: `{"entries": [...]}`."""
    given = {"owner": owner, "verb": verb, "outcome": outcome, "object": thing, "key": made_with}
    where = {name: value for name, value in {**given, "since": since, "until": until}.items() if value}
    with failures(as_json), connect(url, key, profile) as client:
        found = list(client.audit(limit=limit, **where))
    if as_json:
        print_json({"entries": found})
        return
    shown = table("when", "owner", "verb", "object", "outcome", "from", id_column("key"))
    for entry in found:
        row = (entry["owner"] or "-", entry["verb"], entry["object"], entry["outcome"], entry["address"])
        shown.add_row(time_of(entry["at"]), *row, entry["key"] or "")
    results().print(shown)


def show_quotas(quotas: Mapping[str, Any]) -> None:
    """A table of limits and what is used."""
    shown = table("quota", number_column("used"), number_column("limit"))
    for name, said in quotas.items():
        texts = [_amount(name, said[which]) for which in ("used", "limit")]
        shown.add_row(name.replace("_", " "), texts[0], texts[1] or "none")
    results().print(shown)


def _amount(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return size(value) if name == "stored_bytes" else f"{value:.0f}"


def _print_new(made: NewKey, as_json: bool) -> None:
    if as_json:
        print_json(made.said)
        return
    print(made.text)
    console().print(f"Key {made.id} of {made.owner}, role {made.role}: keep it, it is not shown again.", markup=False)


def _print_keys(found: list[Key], as_json: bool) -> None:
    if as_json:
        print_json({"keys": [one.said for one in found]})
        return
    shown = table(id_column("key"), "label", "role", "state", "expires", "last used")
    for one in found:
        shown.add_row(one.id, one.label, one.role, one.state, time_of(one.expires_at), time_of(one.last_used_at))
    results().print(shown)
