"""`tilewright models`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import options as given
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    failures,
    number_column,
    print_json,
    results,
    size,
    table,
    time_of,
)
from tilewright.cli.progress import transfer_bar

models = typer.Typer(help="List, upload and delete models.", invoke_without_command=True)


@models.callback()
def list_models(
    context: typer.Context,
    tag: given.WithTags = None,
    query: given.Query = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List your models, newest first. With `--json`: `{"models": [...]}`."""
    if context.invoked_subcommand:
        return
    with failures(as_json), connect(url, key, profile) as client:
        found = list(client.models(tags=tag or (), query=query, limit=limit))
        if as_json:
            print_json({"models": [model.said for model in found]})
            return
        shown = table("digest", number_column("size"), number_column("data files"), "created", "name", "tags")
        for model in found:
            called = (model.said.get("name") or "", " ".join(model.said.get("tags") or ()))
            shown.add_row(model.digest, size(model.bytes), str(len(model.files)), time_of(model.created_at), *called)
        results().print(shown)


@models.command()
def upload(
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a zip or folder with its external data.")],
    data: given.Data = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Bring a model to the server, unless it has it; prints its digest. With `--json`: the model."""
    with failures(as_json), connect(url, key, profile) as client:
        with transfer_bar("upload", quiet=as_json) as progress:
            kept = client.upload(model, data=data or (), progress=progress)
        print_json(kept.said) if as_json else print(kept.digest)


@models.command()
def label(
    digest: Annotated[str, typer.Argument(help="The digest of a model.")],
    name: given.Name = None,
    note: given.Note = None,
    tag: given.Tags = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Give a model another name, note or tags; what is left out stays, "" takes it away. With `--json`: the model."""
    with failures(as_json), connect(url, key, profile) as client:
        labelled = client.label_model(digest, **given.labels(name, note, tag))
        print_json(labelled.said) if as_json else print(labelled.digest)


@models.command()
def delete(
    digest: Annotated[str, typer.Argument(help="The digest of a model.")],
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Remove a model and what hangs on it. With `--json`: what the server says of it."""
    with failures(as_json), connect(url, key, profile) as client:
        said = client.delete_model(digest)
        if as_json:
            print_json(said)
        elif said.get("stopping"):
            print(f"{said['stopping']} jobs must stop first: repeat this in a few seconds")
        else:
            gone, kept = (
                ", ".join(f"{n} {what}" for what, n in (said.get(part) or {}).items()) for part in ("deleted", "kept")
            )
            print(f"deleted: the model, {gone}; kept: {kept}".replace("_", " "))
