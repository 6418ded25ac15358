"""Every command, as one table; the module of one is imported when it is called, so that the rest costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class Entry:
    """One command, or a group of them.

    home     `module:name` in `tilewright.cli` of the function, or of the group's `typer.Typer`
    summary  what `tilewright --help` says of it: the first sentences of the function's text, or the group's
    """

    name: str
    home: str
    summary: str

    def made(self) -> Any:
        """The command itself. Imports its module."""
        module, _, name = self.home.partition(":")
        found = getattr(import_module(f"tilewright.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = self.name
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)


PANELS: Mapping[str, tuple[Entry, ...]] = {
    "Compiling": (
        Entry("up", "up:up", "Run the whole service on this machine until Ctrl-C; no data leaves it."),
        Entry("preflight", "preflight:preflight", "Say what would become of a compilation, without queueing one."),
        Entry("compile", "compile:compile_model", "Compile a model and download the artifact."),
        Entry("targets", "server:targets", "List what can be compiled for, and who serves it."),
        Entry("operators", "server:operators", "List the operators of ONNX that can be compiled."),
        Entry("records", "records:records", "Look at tuning records, write them to files, carry them elsewhere."),
    ),
    "Jobs": (
        Entry("jobs", "jobs:jobs", "List your jobs, newest first."),
        Entry("watch", "watch:watch", "Follow a job to its end, and show what it made."),
        Entry("finish", "jobs:finish", "End the measuring of a compilation and keep the best found so far."),
        Entry("cancel", "jobs:cancel", "Cancel a job; one that runs is stopped within seconds."),
        Entry("clone", "jobs:clone", "Compile a job's model again; options given replace the job's."),
        Entry("compare", "batches:compare", "Show compilations beside each other: options and what came of them."),
        Entry("label", "jobs:label", "Give a job another name, note or tags."),
        Entry("share", "share:share", "Print a link that opens a job's page without a key, read only."),
        Entry("log", "jobs:log", "Show how a job went: attempts, events, what was printed."),
        Entry("purge", "jobs:purge", "Delete a job with all that it made and measured; its model stays."),
        Entry("batches", "batches:batches", "Compilations of one request for several targets or options."),
        Entry("queue", "queue:queue", "Keep compilations for a time with a server."),
    ),
    "Artifacts": (
        Entry("download", "download:download", "Fetch an artifact, checked by SHA-256."),
        Entry("run", "run:run", "Run an artifact on this machine, without a server."),
        Entry("generate", "generate:generate", "Generate text with a decoder on this machine, without a server."),
        Entry("serve", "serve:serve", "Serve artifacts over HTTP, without the compile service."),
        Entry("doctor", "doctor:doctor", "Check that this machine computes an artifact right."),
        Entry("timeline", "timeline:timeline", "Measure when each task of an artifact's plan runs here."),
        Entry("reproduce", "reproduce:reproduce", "Compile an artifact again here: the same bytes, or what differs."),
        Entry("changes", "changes:changes", "Tell what the compiler installed here changes for other artifacts."),
        Entry("redeploy", "redeploy:redeploy", "Make an artifact's program with other weights here."),
        Entry("strip", "light:strip", "Leave the weights out of an artifact, into a file of their own."),
        Entry("refit", "light:refit", "Put the weights back: the same artifact, byte for byte."),
        Entry("export", "export:export", "Write an artifact for a model server, a registry or web pages."),
        Entry("attest", "attest:attest", "Fetch the server's signed statement of where an artifact comes from."),
        Entry("signer", "attest:signer", "Fetch the key that the server's statements are checked with."),
        Entry("verify", "attest:verify", "Check, without a server, that a file is the artifact of a statement."),
    ),
    "Measuring": (
        Entry("race", "race:race", "Compile a model here and race it with other runtimes, without a server."),
        Entry("check", "check:check", "Check that a model's artifact is not worse than one that was kept, for CI."),
        Entry("bench", "bench:bench", "Time artifacts against each other on the server's device."),
        Entry("infer", "infer:infer", "Run an artifact once on the server's device."),
        Entry("recommend", "recommend:recommend", "Time artifacts on the server and say which to take, and why."),
    ),
    "Smaller models": (
        Entry("quantize", "quantize:quantize", "Quantise a model to 8-bit integers and download it as ONNX."),
        Entry("compress", "compress:compress", "Give a model's weights zeros, or another form that saves; ONNX out."),
        Entry("minimise", "minimise:minimise", "Find the smallest part of a model that fails as the whole does."),
    ),
    "Other devices": (
        Entry("legalise", "legalise:legalise", "Bring a model to an accelerator that has few operators; ONNX out."),
        Entry("accelerate", "accelerate:accelerate", "Compile for an accelerator with Arm's Vela; one artifact out."),
        Entry("place", "place:place", "Predict where a model's parts would run on a described platform."),
    ),
    "Operating": (
        Entry("workers", "server:workers", "List the workers that are alive."),
        Entry("models", "models:models", "List, upload and delete models."),
        Entry("me", "keys:me", "Show whose key is used, what it allows, and what is used of each limit."),
        Entry("keys", "keys:keys", "List, make, rotate and revoke API keys."),
        Entry("owners", "owners:owners", "List, make, limit, suspend and delete owners (operator)."),
        Entry("audit", "keys:audit", "List who changed what, and who was refused, newest first."),
        Entry("webhooks", "webhooks:webhooks", "Addresses that get a message when jobs end."),
        Entry("profiles", "profiles:profiles", "Name servers, and choose one."),
    ),
}
"""The commands by the panel of the help that they stand in."""


FAULTS: Mapping[str, str] = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "less_than_equal": "{input!r} is more than {le:g}, the most there may be",
    "greater_than_equal": "{input!r} is less than {ge:g}, the least there may be",
    "value_error": "{error}",
}
"""What is said of a value that an option does not take, by the kind of fault that its library names."""


def plain(cause: object) -> str:
    """What is wrong with a value, without the words of the library that found it; empty where that is not known."""
    faults = cause.errors() if hasattr(cause, "errors") else ()
    said = [
        FAULTS[one["type"]].format(input=one["input"], **one.get("ctx", {})) for one in faults if one["type"] in FAULTS
    ]
    return "; ".join(one.rstrip(".") for one in said)


class Later(TyperCommand):
    """A command that is known by name and summary until it is called."""

    def __init__(self, entry: Entry, panel: str) -> None:
        super().__init__(entry.name, help=entry.summary, short_help=entry.summary, rich_help_panel=panel)
        self.entry = entry

    def make_context(self, *given: Any, **named: Any) -> Any:
        """The context of the command itself, with which it is parsed, completed and invoked.

        Raises typer's errors for words that make no sense.
        """
        try:
            return self.entry.made().make_context(*given, **named)
        except typer.BadParameter as error:
            error.message = plain(error.__cause__) or error.message
            raise


class Commands(TyperGroup):
    """The commands of `PANELS`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for panel, entries in PANELS.items():
            for entry in entries:
                self.add_command(Later(entry, panel))
        self._bare = False

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        """What is left behind the options that stand before the command; where none do, they are not looked for."""
        self._bare = bool(words) and not words[0].startswith("-")
        try:
            return super().parse_args(context, words)
        finally:
            self._bare = False

    def get_params(self, context: Any) -> list[Any]:
        """Options; to leave one at its default, too, typer loads pydantic, a third of what misuse costs."""
        return [] if self._bare else super().get_params(context)


def tree() -> dict[str, Any]:
    """Every command by name, with its parameters and the commands of its own. Imports all of their modules."""
    return {entry.name: entry.made() for entries in PANELS.values() for entry in entries}
