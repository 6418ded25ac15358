"""`/artifacts`: what a compilation made."""

from __future__ import annotations

import hashlib
import uuid
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Request, Response

from service.blobs.members import member, members
from service.errors import JobNotFinished, PartTooLarge
from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.download import IMMUTABLE, blob_response, matches
from service.http.responses.errors import problem_responses
from service.http.schemas.attestations import EnvelopeOut, SigningKeyOut
from service.http.schemas.common import ArtifactFile, ArtifactFilesOut, ReceiptOut, utc
from service.http.schemas.ids import ArtifactId
from service.http.state import Here, State
from service.jobs.accounts.access import Caller
from service.jobs.lifecycle import attestation, find

ETAG = {"ETag": {"description": "SHA-256 of the file, quoted.", "schema": {"type": "string"}}}
FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The artifact, a zip file with the extension .tw.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        "headers": ETAG,
    },
    206: {
        "description": "The part that `Range` asked for; several parts are answered with the whole file.",
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The caller's copy (`If-None-Match`) is this file."},
}
INERT = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)
"""What a browser lets a file do that came from a job: be drawn, in an origin of its own, without scripts."""

Name = Annotated[str, Path(description="As `/artifacts/{id}/files` lists it, less `source/`.", examples=["kernel_0.c"])]
IfNoneMatch = Annotated[str | None, Header(description="ETags that the caller has.")]
MEDIA = {"json": "application/json", "svg": "image/svg+xml", "html": "text/html", "text": "text/plain"}
PROBLEMS = problem_responses(404, JobNotFinished, 410)
PART_PROBLEMS = problem_responses(404, JobNotFinished, 410, PartTooLarge)

router = Gated(tags=["artifacts"])


def _of(description: str, **examples: Any) -> dict[int | str, dict[str, Any]]:
    """What a route declares that answers with one file of an artifact, an example for each of its forms."""
    content = {MEDIA[form]: {"schema": _schema(example), "example": example} for form, example in examples.items()}
    return {
        **PART_PROBLEMS,
        200: {"description": description, "content": content, "headers": ETAG},
        304: {"description": "The caller's copy (`If-None-Match`) is this file."},
    }


def _schema(example: Any) -> dict[str, str]:
    return {"type": "string" if isinstance(example, str) else "object"}


@router.get(
    "/artifacts/{artifact_id}",
    summary="Download an artifact",
    response_class=Response,
    responses={**problem_responses(404, JobNotFinished, 410, 416), **FILE},
)
@router.head(
    "/artifacts/{artifact_id}",
    summary="Look at an artifact without downloading it",
    operation_id="has_artifact",
    response_class=Response,
    responses={**problem_responses(404, JobNotFinished, 410, 416), **FILE},
)
def download_artifact(
    request: Request,
    here: Here,
    caller: Reader,
    artifact_id: ArtifactId,
    if_none_match: IfNoneMatch = None,
    range_: Annotated[str | None, Header(alias="Range", description="Bytes that the caller lacks.")] = None,
    if_range: Annotated[str | None, Header(description="`Range` holds only for the file with this ETag.")] = None,
    partial: Annotated[
        bool, Query(description="Before the artifact exists: the one made before measuring, if there is one.")
    ] = False,
) -> Response:
    """The file. Before the job is done 409 with `Retry-After`; after it failed 410 with the reason.

    With `partial` a compilation that measures for a minute or more answers with the artifact that its cost model
    chose, whole and agreed, until there is its own; also where it was cancelled meanwhile.

    `Range` and `If-Range` are honoured, so that a broken download goes on where it stopped.
    """
    so_far = find.artifact_so_far if partial else find.artifact
    artifact = so_far(here.db, caller.owner, artifact_id)
    answer = blob_response(
        request,
        here.blobs,
        here.pools.downloads,
        key=artifact.blob_key,
        size=artifact.bytes,
        etag=f'"{artifact.sha256}"',
        media_type="application/zip",
        filename=f"{artifact_id}.tw",
    )
    if partial:
        answer.headers["Cache-Control"] = "private, no-cache"
    return answer


@router.get("/artifacts/{artifact_id}/receipt", summary="Receipt of an artifact", responses=PROBLEMS)
def get_receipt(here: Here, caller: Reader, artifact_id: ArtifactId) -> ReceiptOut:
    """What varies between two compilations of the same bytes: times, measurements, the numeric verdict."""
    artifact = find.artifact(here.db, caller.owner, artifact_id)
    return ReceiptOut(
        artifact=artifact.id,
        job=artifact.job_id,
        sha256=artifact.sha256,
        bytes=artifact.bytes,
        created_at=utc(artifact.created_at),
        receipt=artifact.receipt,
    )


@router.get("/artifacts/{artifact_id}/attestation", summary="Signed provenance of an artifact", responses=PROBLEMS)
def get_attestation(here: Here, caller: Reader, artifact_id: ArtifactId) -> EnvelopeOut:
    """A DSSE envelope with an in-toto statement: which model, options, machine and job these bytes come from.

    `GET /signing-key` has the key that it is signed with. `tilewright verify` checks it without a server.
    """
    return EnvelopeOut(**attestation.attest(here.db, here.signer, caller.owner, artifact_id))


@router.get("/signing-key", summary="The key that signatures are checked with")
def get_signing_key(here: Here, caller: Reader) -> SigningKeyOut:
    """Ed25519. Ask for it over a connection that is trusted, and keep it: statements are checked against it offline."""
    public = here.signer.public
    return SigningKeyOut(keyid=public.id, algorithm="ed25519", public_key=public.pem)


@router.get("/artifacts/{artifact_id}/files", summary="List the files inside an artifact", responses=PROBLEMS)
def list_files(here: Here, caller: Reader, artifact_id: ArtifactId) -> ArtifactFilesOut:
    """Names and sizes. Those below `source/` are served by themselves, as are manifest, plan and report."""
    artifact = find.artifact(here.db, caller.owner, artifact_id)
    return ArtifactFilesOut(
        artifact=artifact.id,
        files=[
            ArtifactFile(name=one.name, bytes=one.bytes)
            for one in members(here.blobs, artifact.blob_key, artifact.bytes)
        ],
    )


@router.get(
    "/artifacts/{artifact_id}/manifest",
    summary="Manifest of an artifact",
    response_class=Response,
    responses=_of(
        "`manifest.json`: format, inputs and outputs, files with their digests.",
        json={"format": "tilewright-artifact", "inputs": [], "outputs": []},
    ),
)
def get_manifest(here: Here, caller: Reader, artifact_id: ArtifactId, if_none_match: IfNoneMatch = None) -> Response:
    """The artifact's `manifest.json` without the rest."""
    return _part(here, caller, artifact_id, "manifest.json", "application/json", if_none_match)


@router.get(
    "/artifacts/{artifact_id}/plan",
    summary="Execution plan of an artifact",
    response_class=Response,
    responses=_of(
        "`plan.json`, or `plan.svg` with `format=svg`.", json={"lanes": 4, "calls": []}, svg="<svg>...</svg>"
    ),
)
def get_plan(
    here: Here,
    caller: Reader,
    artifact_id: ArtifactId,
    format: Annotated[Literal["json", "svg"], Query(description="For programs, or as a picture.")] = "json",
    candidate: Annotated[
        int | None,
        Query(
            ge=0, le=999, description="In place of the plan one that was not taken: its place in the report's `plans`."
        ),
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Which kernel runs when, on which lane, over which memory.

    A `candidate` is told in the same form, with its tasks as predicted and, where it was run, as they were measured.
    """
    if candidate is not None:
        return _part(here, caller, artifact_id, f"plans/{candidate}.json", "application/json", if_none_match)
    media = "image/svg+xml" if format == "svg" else "application/json"
    return _part(here, caller, artifact_id, f"plan.{format}", media, if_none_match)


@router.get(
    "/artifacts/{artifact_id}/graph",
    summary="Graph of an artifact's model after each step",
    response_class=Response,
    responses=_of(
        "`graph.json`: values by id, nodes of each step, rules that were applied, and the nodes of each kernel.",
        json={"format_version": 1, "values": {}, "steps": [], "kernels": []},
    ),
)
def get_graph(here: Here, caller: Reader, artifact_id: ArtifactId, if_none_match: IfNoneMatch = None) -> Response:
    """The graph as loaded, as rewritten, and as it was fused; an id of a value is the same in each."""
    return _part(here, caller, artifact_id, "graph.json", "application/json", if_none_match)


@router.get(
    "/artifacts/{artifact_id}/trace",
    summary="Schedule of an artifact for a trace viewer",
    response_class=Response,
    responses=_of(
        "`trace.json`: trace events, as Perfetto (ui.perfetto.dev) and chrome://tracing open them.",
        json={"traceEvents": [], "displayTimeUnit": "ns"},
    ),
)
def get_trace(here: Here, caller: Reader, artifact_id: ArtifactId, if_none_match: IfNoneMatch = None) -> Response:
    """When each task of the plan runs, predicted and, where it was traced, measured; hand-overs as arrows."""
    return _part(here, caller, artifact_id, "trace.json", "application/json", if_none_match)


@router.get(
    "/artifacts/{artifact_id}/report.html",
    summary="Report of an artifact, for people",
    response_class=Response,
    responses=_of("`report.html`: what was made of the model and why.", html="<!doctype html>..."),
)
def get_report_page(here: Here, caller: Reader, artifact_id: ArtifactId, if_none_match: IfNoneMatch = None) -> Response:
    """One page without scripts or outside parts; its headers forbid a browser both."""
    return _part(here, caller, artifact_id, "report.html", "text/html", if_none_match)


@router.get(
    "/artifacts/{artifact_id}/source/{name:path}",
    summary="Generated source of an artifact",
    response_class=Response,
    responses=_of("The file, as text.", text='#include "tw_kernel.h"\n...'),
)
def get_artifact_source(
    here: Here, caller: Reader, artifact_id: ArtifactId, name: Name, if_none_match: IfNoneMatch = None
) -> Response:
    """A file below `source/`, by the name that `/artifacts/{id}/files` lists."""
    return _part(here, caller, artifact_id, f"source/{name}", "text/plain", if_none_match)


def _part(
    here: State, caller: Caller, artifact_id: uuid.UUID, name: str, media_type: str, if_none_match: str | None
) -> Response:
    """One file of the artifact; a browser never takes it for anything but what it is said to be."""
    artifact = find.artifact(here.db, caller.owner, artifact_id)
    content = member(here.blobs, artifact.blob_key, name, artifact.bytes)
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    headers = {**IMMUTABLE, "ETag": etag, "Content-Security-Policy": INERT}
    if matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
