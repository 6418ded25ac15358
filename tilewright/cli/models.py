"""`tilewright models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

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
from tilewright.errors import UsageError

if TYPE_CHECKING:
    from tilewright.workloads import Workload

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
    model: Annotated[str, typer.Argument(help="An ONNX file, a zip or folder with its data, or an address.")],
    data: given.Data = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Bring a model to the server, unless it has it; prints its digest. With `--json`: the model."""
    with failures(as_json):
        given.demand_files(model, *(data or ()))
        source = given.fetched(model)
    with failures(as_json), connect(url, key, profile) as client:
        with transfer_bar("upload", quiet=as_json) as progress:
            kept = client.upload(source, data=data or (), progress=progress)
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
def workload(
    digest: Annotated[str, typer.Argument(help="The digest of a model.")],
    name: Annotated[str, typer.Argument(help="Name of the workload; without it all are listed.")] = "",
    dim: Annotated[list[str] | None, typer.Option("--dim", help="NAME=SIZE of an open dimension; repeatable.")] = None,
    forget: Annotated[bool, typer.Option("--delete", help="Delete it.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Name a workload of a model by its sizes, list those that there are, or delete one. With `--json`: the same."""
    with failures(as_json), connect(url, key, profile) as client:
        sizes = given.sizes(dim)
        if not name and (sizes or forget):
            raise UsageError("sizes or --delete need a name", fix="name the workload behind the digest")
        if sizes and forget:
            raise UsageError("--dim and --delete exclude each other", fix="give one of them")
        if forget:
            client.delete_workload(digest, name)
            print_json({"name": name, "deleted": True}) if as_json else print(f"{name} deleted")
            return
        if name:
            one = client.put_workload(digest, name, sizes) if sizes else client.workload(digest, name)
            print_json(one.said) if as_json else print(one.name, given_sizes(one))
            return
        found = client.workloads(digest)
        if as_json:
            print_json({"workloads": [each.said for each in found]})
            return
        shown = table("workload", "sizes")
        for each in found:
            shown.add_row(escape(each.name), escape(given_sizes(each)))
        results().print(shown)


def given_sizes(workload: Workload) -> str:
    """As `--dim` takes them."""
    return " ".join(f"{name}={size}" for name, size in workload.dims.items())


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
