"""`tilewright owners`: what an operator does with owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tilewright.cli.keys import show_quotas
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, print_json, results, table, time_of
from tilewright.errors import UsageError

owners = typer.Typer(help="List, make, limit, suspend and delete owners (operator).", invoke_without_command=True)

Name = Annotated[str, typer.Argument(help="The name of an owner.")]
Many = Annotated[int, typer.Option("--limit", "-n", min=0, help="The first so many by name; 0: all.")]
DEFAULT = "default"
Quota = Annotated[str, typer.Option(help=f"A number, 0 for no limit, or {DEFAULT!r} for the server's.")]


@owners.callback()
def list_owners(
    context: typer.Context,
    limit: Many = 0,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List owners by name. With `--json`: `{"owners": [...]}`."""
    if not context.invoked_subcommand:
        _list(limit, url, key, profile, as_json)


@owners.command("list")
def list_again(limit: Many = 0, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """List owners by name. With `--json`: `{"owners": [...]}`."""
    _list(limit, url, key, profile, as_json)


@owners.command()
def show(name: Name, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Show an owner, its limits and what it has. With `--json`: the owner."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.owner(name), as_json)


@owners.command()
def make(name: Name, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Make an owner; `tilewright keys make --owner` makes its first key. With `--json`: the owner."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.make_owner(name), as_json)


@owners.command()
def limit(
    name: Name,
    stored_bytes: Quota = "",
    queued_jobs: Quota = "",
    concurrent_jobs: Quota = "",
    device_seconds: Quota = "",
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Grant an owner limits of its own; those left out stay. With `--json`: the owner."""
    given = {
        "stored_bytes": stored_bytes,
        "queued_jobs": queued_jobs,
        "concurrent_jobs": concurrent_jobs,
        "device_seconds": device_seconds,
    }
    with failures(as_json):
        wanted = {name: _number(name, text) for name, text in given.items() if text}
        if not wanted:
            raise UsageError("no limit was named", fix="name one, such as --device-seconds 3600")
        with connect(url, key, profile) as client:
            _print(client.change_owner(name, suspended=None, **wanted), as_json)


@owners.command()
def suspend(name: Name, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Refuse an owner's keys and start none of its jobs. With `--json`: the owner."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.change_owner(name, suspended=True), as_json)


@owners.command()
def resume(name: Name, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Let a suspended owner in again. With `--json`: the owner."""
    with failures(as_json), connect(url, key, profile) as client:
        _print(client.change_owner(name, suspended=False), as_json)


@owners.command()
def delete(
    name: Name,
    confirm: Annotated[str, typer.Option("--confirm", help="The name once more; nothing brings an owner back.")] = "",
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Delete an owner with everything that is its own. With `--json`: what the server says of it."""
    with failures(as_json):
        if confirm != name:
            raise UsageError("the deletion is not confirmed", fix=f"repeat the name: --confirm {name}")
        with connect(url, key, profile) as client:
            said = client.delete_owner(name, confirm=confirm)
        if as_json:
            print_json(said)
        elif said.get("stopping"):
            print(f"{said['stopping']} jobs are told to stop; the rest is deleted by itself when they have")
        else:
            print(f"deleted {name}: " + ", ".join(f"{count} {what}" for what, count in said["deleted"].items()))


def _list(limit: int, url: str, key: str, profile: str, as_json: bool) -> None:
    with failures(as_json), connect(url, key, profile) as client:
        found = list(client.owners(limit=limit))
    if as_json:
        print_json({"owners": found})
        return
    shown = table("owner", "state", "since")
    for one in found:
        shown.add_row(one["name"], one["state"], time_of(one["created_at"]))
    results().print(shown)


def _print(owner: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(owner)
        return
    print(f"{owner['name']} {owner['state']}")
    show_quotas(owner["quotas"])


def _number(name: str, text: str) -> float | None:
    """Raises `UsageError`."""
    if text == DEFAULT:
        return None
    try:
        return float(text) if name == "device_seconds" else int(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number", fix=f"give a number, or {DEFAULT!r}") from None
