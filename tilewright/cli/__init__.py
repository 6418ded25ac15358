"""The command line.

Exit status: 0 done; 1 a job failed or was cancelled, or a preflight says that it would; 2 the command or a file makes
no sense; 3 the server does not answer; 4 the server refused the request; 5 a download was damaged, or an artifact is
not what was signed; 6 the time to wait was over; 130 interrupted.
With `--json` standard output is JSON, for a failure `{"error": {"code", "message", "fix", "problem"}}`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from tilewright import job_kinds
from tilewright.cli import (
    accelerate,
    attest,
    batches,
    changes,
    download,
    export,
    generate,
    jobs,
    keys,
    legalise,
    light,
    models,
    output,
    owners,
    place,
    preflight,
    profiles,
    queue,
    race,
    recommend,
    records,
    redeploy,
    reproduce,
    run,
    server,
    share,
    timeline,
    up,
    watch,
    webhooks,
)
from tilewright.errors import UsageError

COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("up", up.up),
    *(import_module(kind.cli).COMMAND for kind in job_kinds.KINDS),
    ("preflight", preflight.preflight),
    ("legalise", legalise.legalise),
    ("accelerate", accelerate.accelerate),
    ("place", place.place),
    ("jobs", jobs.jobs),
    ("compare", batches.compare),
    ("watch", watch.watch),
    ("finish", jobs.finish),
    ("clone", jobs.clone),
    ("label", jobs.label),
    ("share", share.share),
    ("cancel", jobs.cancel),
    ("purge", jobs.purge),
    ("log", jobs.log),
    ("download", download.download),
    ("attest", attest.attest),
    ("signer", attest.signer),
    ("verify", attest.verify),
    ("reproduce", reproduce.reproduce),
    ("changes", changes.changes),
    ("redeploy", redeploy.redeploy),
    ("export", export.export),
    ("strip", light.strip),
    ("refit", light.refit),
    ("recommend", recommend.recommend),
    ("race", race.race),
    ("run", run.run),
    ("generate", generate.generate),
    ("timeline", timeline.timeline),
    ("targets", server.targets),
    ("operators", server.operators),
    ("workers", server.workers),
    ("me", keys.me),
    ("audit", keys.audit),
)
GROUPS: tuple[tuple[str, typer.Typer], ...] = (
    ("models", models.models),
    ("batches", batches.batches),
    ("queue", queue.queue),
    ("records", records.records),
    ("profiles", profiles.profiles),
    ("keys", keys.keys),
    ("webhooks", webhooks.webhooks),
    ("owners", owners.owners),
)
"""Commands that have commands of their own."""

app = typer.Typer(
    name="tilewright",
    help="Compile neural networks: `tilewright up`, then `tilewright compile model.onnx`.",
    epilog=" ".join((__doc__ or "").split("\n\n")[1].split()),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _command in COMMANDS:
    app.command(_name)(_command)
for _name, _group in GROUPS:
    app.add_typer(_group, name=_name)

Misused: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a command line that makes no sense."""


@app.callback()
def root(profile: output.ProfileName = "") -> None:
    """Options before the command."""
    output.chosen_profile.set(profile)


def main() -> None:
    """The entry point of the command `tilewright`."""
    output.accept_all_letters()
    try:
        if "--json" in sys.argv[1:]:
            sys.exit(_for_programs())
        app()
    except KeyboardInterrupt:
        sys.exit(130)


def _for_programs() -> int:
    """Run a command whose misuse, too, is reported as JSON; its exit status."""
    try:
        status = typer.main.get_command(app).main(standalone_mode=False)
    except Misused as error:
        fix = "see `tilewright --help`, and `--help` of the command"
        output.print_json(
            {"error": {"code": UsageError.code, "message": error.format_message(), "fix": fix, "problem": None}}
        )
        return UsageError.exit_status
    return status if isinstance(status, int) else 0
