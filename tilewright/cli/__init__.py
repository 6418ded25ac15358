"""The command line.

Exit status: 0 done; 1 a job failed or was cancelled, or a preflight says that it would; 2 the command or a file makes
no sense; 3 the server does not answer; 4 the server refused the request; 5 a download was damaged, or an artifact is
not what was signed; 6 the time to wait was over; 130 interrupted.
With `--json` standard output is JSON, for a failure `{"error": {"code", "message", "fix", "problem"}}`.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer

from tilewright.cli.commands import Commands
from tilewright.errors import UsageError

app = typer.Typer(
    name="tilewright",
    cls=Commands,
    help="Compile neural networks: `tilewright up`, then `tilewright compile model.onnx`.",
    epilog=" ".join((__doc__ or "").split("\n\n")[1].split()),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Misused: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a command line that makes no sense."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        print(f"tilewright {metadata.version('tilewright')}")
        raise typer.Exit


@app.callback()
def root(
    profile: Annotated[str | None, typer.Option("--profile", help="A server of `tilewright profiles`.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""
    from tilewright.cli import output

    output.chosen_profile.set(profile or "")


def main() -> None:
    """The entry point of the command `tilewright`."""
    accept_all_letters()
    try:
        sys.exit(_status(as_json="--json" in sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


def accept_all_letters() -> None:
    """Lets any text be printed: what the terminal's encoding has no letter for is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _status(*, as_json: bool) -> int:
    """Run the command of this process; its exit status, with misuse reported as JSON or as text.

    The text is plain: the panel that typer would draw loads a reader of Markdown and a highlighter of code.
    """
    try:
        status = typer.main.get_command(app).main(standalone_mode=False)
    except Misused as error:
        message = error.format_message()
        if as_json:
            from tilewright.cli import output

            fix = "see `tilewright --help`, and `--help` of the command"
            output.print_json({"error": {"code": UsageError.code, "message": message, "fix": fix, "problem": None}})
        elif message:  # of a command that was called without words the help has been printed
            error.show()
        return UsageError.exit_status
    return status if isinstance(status, int) else 0
