"""`tilewright profiles`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilewright import profiles as kept
from tilewright.cli.output import Json, failures, print_json, results, table
from tilewright.errors import UsageError

profiles = typer.Typer(help="Name servers, and choose one.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(help="The profile's name.")]


@profiles.callback()
def callback(context: typer.Context, as_json: Json = False) -> None:
    """Without a command: list them."""
    if not context.invoked_subcommand:
        list_profiles(as_json)


@profiles.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List them; keys are not shown. With `--json`: `{"profiles": [...], "file"}`."""
    with failures(as_json):
        found = kept.load()
        if as_json:
            listed = [
                {
                    "name": name,
                    "url": one.url,
                    "key": bool(one.key),
                    "key_file": one.key_file,
                    "used": name == found.used,
                }
                for name, one in sorted(found.profiles.items())
            ]
            print_json({"profiles": listed, "file": str(kept.config_file())})
            return
        shown = table("", "profile", "url", "key")
        for name, one in sorted(found.profiles.items()):
            key = one.key_file or ("in the file" if one.key else "-")
            shown.add_row("*" if name == found.used else "", name, one.url, key)
        results().print(shown)


@profiles.command()
def add(
    name: Name,
    url: Annotated[str, typer.Argument(help="The server's address, as http://host:port.")],
    key: Annotated[str, typer.Option("--key", help="The API key; `-` reads it from standard input.")] = "",
    key_file: Annotated[Path | None, typer.Option("--key-file", help="A file that holds the API key.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    as_json: Json = False,
) -> None:
    """Add a server, or change one. With `--json`: `name`, `url` and `file`."""
    with failures(as_json):
        if key and key_file:
            raise UsageError("--key and --key-file exclude each other", fix="give one of them")
        if not name or not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is no address", fix="give one as http://host:port")
        found = kept.load()
        text = sys.stdin.readline().strip() if key == "-" else key
        profile = kept.Profile(url, text, str(key_file.expanduser().resolve()) if key_file else "")
        profile.read_key()
        _save(
            replace(found, profiles={**found.profiles, name: profile}, used=name if use else found.used), name, as_json
        )


@profiles.command()
def use(
    name: Annotated[str, typer.Argument(help="The profile's name; left out: none is in use.")] = "",
    as_json: Json = False,
) -> None:
    """Use a server from now on, unless a command or the environment names another."""
    with failures(as_json):
        found = kept.load()
        if name:
            found.get(name)
        _save(replace(found, used=name), name, as_json)


@profiles.command()
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a server."""
    with failures(as_json):
        found = kept.load()
        found.get(name)
        others = {other: one for other, one in found.profiles.items() if other != name}
        _save(kept.Profiles(others, "" if found.used == name else found.used), name, as_json)


def _save(found: kept.Profiles, name: str, as_json: bool) -> None:
    file = kept.save(found)
    if as_json:
        url = found.profiles[name].url if name in found.profiles else None
        print_json({"name": name, "url": url, "file": str(file)})
    else:
        print(file)
