"""`tilewright attest`, `signer` and `verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tilewright.attestation import SUFFIX
from tilewright.attestation import verify as verified
from tilewright.cli.output import Json, Key, ProfileName, Url, artifact_id, connect, failures, print_json
from tilewright.errors import UsageError


def attest(
    artifact: Annotated[str, typer.Argument(help="The id of an artifact, or of the job that made it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Default: the artifact's id with .tw{SUFFIX}.")
    ] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Fetch the server's signed statement of where an artifact comes from. With `--json`: `attestation`, the file."""
    with failures(as_json, output), connect(url, key, profile) as client:
        name = artifact_id(client, artifact)
        path = output or Path(f"{name}.tw{SUFFIX}")
        _write(path, json.dumps(client.attestation(name)) + "\n")
        print_json({"attestation": str(path)}) if as_json else print(path)


def signer(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Fetch the key that the server's statements are checked with; keep it. With `--json`: `public_key`."""
    with failures(as_json, output), connect(url, key, profile) as client:
        pem = client.signer()
        if output is not None:
            _write(output, pem)
        print_json({"public_key": pem}) if as_json else print("" if output else pem, end="")


def verify(
    artifact: Annotated[Path, typer.Argument(help="The file of an artifact.")],
    signer_key: Annotated[Path, typer.Option("--signer", help="The key that `tilewright signer` fetched.")],
    attestation: Annotated[
        Path | None, typer.Option("--attestation", help=f"Default: the artifact's file with {SUFFIX}.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check, without a server, that a file is the artifact of a signed statement. With `--json`: the statement."""
    with failures(as_json):
        beside = attestation or artifact.with_name(artifact.name + SUFFIX)
        try:
            envelope = json.loads(beside.read_bytes())
            signing_key = signer_key.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{error.filename} cannot be read: {error.strerror}", fix="fetch it: `tilewright attest`, `signer`"
            ) from error
        except ValueError as error:
            raise UsageError(f"{beside} is not JSON: {error}", fix="fetch it again: `tilewright attest`") from error
        statement = verified(artifact, envelope, signing_key)
        if as_json:
            print_json(statement)
            return
        build = statement["predicate"]["buildDefinition"]
        made = statement["predicate"]["runDetails"]["metadata"]
        print(f"{artifact} is genuine: job {made['invocationId']} made it, until {made['finishedOn']},")
        print(f"of model {build['externalParameters']['model']}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", fix="name another file with -o") from error
