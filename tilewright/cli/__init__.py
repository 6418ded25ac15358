"""The command line.

Exit status: 0 done; 1 the job failed or was cancelled; 2 the command or a file makes no sense; 3 the server does not
answer; 4 the server refused the request; 5 a download was damaged; 130 interrupted. With `--json` standard output
is JSON, for a failure `{"error": {"code", "message", "fix", "problem"}}`.
"""

from __future__ import annotations

import sys

import typer

from tilewright.cli import compile as compile_command
from tilewright.cli import download, jobs, run, up, watch

COMMANDS = (
    ("up", up.up),
    ("compile", compile_command.compile_model),
    ("jobs", jobs.jobs),
    ("watch", watch.watch),
    ("download", download.download),
    ("run", run.run),
)

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


def main() -> None:
    """The entry point of the command `tilewright`."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
