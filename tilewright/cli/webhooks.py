"""`tilewright webhooks`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    failures,
    id_column,
    number_column,
    print_json,
    results,
    table,
    time_of,
)

webhooks = typer.Typer(help="Addresses that get a message when jobs end.", invoke_without_command=True)

WebhookId = Annotated[str, typer.Argument(help="The id of a webhook, as `tilewright webhooks` lists it.")]


@webhooks.callback()
def list_webhooks(
    context: typer.Context, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False
) -> None:
    """List webhooks, newest first. With `--json`: `{"webhooks": [...]}`."""
    if context.invoked_subcommand:
        return
    with failures(as_json), connect(url, key, profile) as client:
        found = client.webhooks()
    if as_json:
        print_json({"webhooks": [one.said for one in found]})
        return
    shown = table(id_column("webhook"), "address", "of", "state", "since", "disabled")
    for one in found:
        times = (time_of(one.said.get("created_at")), time_of(one.said.get("disabled_at")))
        shown.add_row(one.id, one.url, " ".join(one.states) or "every end", one.state, *times)
    results().print(shown)


@webhooks.command()
def make(
    address: Annotated[str, typer.Argument(help="The URL to send to.")],
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only jobs that end so: SUCCEEDED, FAILED, CANCELLED.")
    ] = None,
    secret: Annotated[str, typer.Option("--secret", help="`whsec_...`; default: the server makes one.")] = "",
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Have an address told, once it answers its challenge; prints id and secret. With `--json`: the webhook.

    Nothing shows the secret again.
    """
    with failures(as_json), connect(url, key, profile) as client:
        made = client.make_webhook(address, states=[name.upper() for name in state or ()], secret=secret)
        print_json(made.said) if as_json else print(f"{made.id} {made.secret}")


@webhooks.command()
def delete(webhook: WebhookId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Send nothing more there. With `--json`: its id."""
    with failures(as_json), connect(url, key, profile) as client:
        client.delete_webhook(webhook)
        print_json({"id": webhook}) if as_json else print(f"{webhook} deleted")


@webhooks.command("test")
def try_it(webhook: WebhookId, url: Url = "", key: Key = "", profile: ProfileName = "", as_json: Json = False) -> None:
    """Send it something that tells of no job, or its challenge again. With `--json`: the delivery.

    One that was disabled is told of jobs again.
    """
    with failures(as_json), connect(url, key, profile) as client:
        said = client.try_webhook(webhook)
        print_json(said) if as_json else print(f"{said['id']}: see tilewright webhooks deliveries {webhook}")


@webhooks.command()
def deliveries(
    webhook: WebhookId,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The newest so many; 0: all.")] = 20,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """List what was sent there, newest first. With `--json`: `{"deliveries": [...]}`."""
    with failures(as_json), connect(url, key, profile) as client:
        found = list(client.deliveries(webhook, limit=limit))
    if as_json:
        print_json({"deliveries": found})
        return
    shown = table(id_column("delivery"), id_column("job"), "state", number_column("attempts"), "next", "why not")
    for one in found:
        cells = (one["job"] or "", one["state"], str(one["attempts"]), time_of(one["next_at"]), one["fault"] or "")
        shown.add_row(one["id"], *cells)
    results().print(shown)
