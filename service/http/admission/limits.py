"""What each route may be asked for: the bytes of its body, and how many requests of one owner are worked on at once.

A route that is not listed asks the database: its body is JSON of at most `JSON_BYTES`, and its lane is `Lane.QUERY`.
Routes go by the names of their functions, which are their operation ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from service.config import Settings
from service.http.multipart.parts import MAX_OPTIONS_BYTES

JSON_BYTES = 64 << 10
"""Of a JSON body that is read whole."""
ENVELOPE_BYTES = 4 << 20
"""What boundaries and part headers may add to a multipart body, or headers and directory to a zip."""


class Lane(Enum):
    """Requests that compete with each other for the same means; the limits of one owner are for each lane apart."""

    STATUS = "status reads"
    QUERY = "queries"
    UPLOAD = "uploads"
    UNPACKING = "unpacking"
    PREFLIGHT = "preflights"
    STREAM = "event streams"
    DOWNLOAD = "downloads"


class Body(Enum):
    """How large a body may be."""

    JSON = "JSON of `JSON_BYTES`"
    OPTIONS = "JSON of `MAX_OPTIONS_BYTES`, because it holds options of a compilation"
    FILES = "`max_model_bytes`, and what their envelope adds"

    def most(self, settings: Settings) -> int:
        """The limit in bytes."""
        if self is Body.FILES:
            return settings.max_model_bytes + ENVELOPE_BYTES + MAX_OPTIONS_BYTES
        return MAX_OPTIONS_BYTES if self is Body.OPTIONS else JSON_BYTES


@dataclass(frozen=True)
class Terms:
    """Of one route."""

    body: Body = Body.JSON
    lane: Lane = Lane.QUERY


ROUTES: Mapping[str, Terms] = {
    "compile_model": Terms(Body.FILES, Lane.UPLOAD),
    "upload_model": Terms(Body.FILES, Lane.UPLOAD),
    "append_to_upload": Terms(Body.FILES, Lane.UPLOAD),
    "make_inference": Terms(Body.FILES, Lane.UPLOAD),
    "import_records": Terms(Body.FILES, Lane.UPLOAD),
    "preflight_model": Terms(Body.FILES, Lane.PREFLIGHT),
    "get_source": Terms(lane=Lane.PREFLIGHT),
    "clone_job": Terms(Body.OPTIONS),
    "follow_job": Terms(lane=Lane.STREAM),
    "download_artifact": Terms(lane=Lane.DOWNLOAD),
    "download_model_file": Terms(lane=Lane.DOWNLOAD),
    "get_outputs": Terms(lane=Lane.DOWNLOAD),
    "list_records": Terms(lane=Lane.DOWNLOAD),
    "export_records": Terms(lane=Lane.DOWNLOAD),
    "get_log": Terms(lane=Lane.DOWNLOAD),
    "get_job": Terms(lane=Lane.STATUS),
    "has_job": Terms(lane=Lane.STATUS),
}


DIVIDED = (
    "requests_per_s",
    "requests_burst",
    "max_queries_per_owner",
    "max_uploads_per_owner",
    "max_preflights_per_owner",
    "max_streams_per_owner",
    "max_downloads_per_owner",
    "max_connections",
    "max_connections_per_address",
)
"""Settings that are limits of all API processes of a machine together, of which each process counts its own part."""


def share(settings: Settings) -> Settings:
    """The settings with one process's part of each limit, numbers rounded up: all parts together are the limit.

    The system deals connections out to processes, which know nothing of each other's.
    """
    processes = settings.api_processes
    whole = {name: getattr(settings, name) for name in DIVIDED}
    parts = {name: -(-most // processes) if isinstance(most, int) else most / processes for name, most in whole.items()}
    return settings.model_copy(update=parts)


@dataclass(frozen=True)
class Crowd:
    """How many requests of one owner a lane takes in one process: worked on, and waiting for their turn."""

    at_once: int
    waiting: int


def crowds(settings: Settings) -> Mapping[Lane, Crowd]:
    """The lanes that are bounded; status reads are answered many at a time by one query and are not."""
    return {
        Lane.QUERY: Crowd(settings.max_queries_per_owner, 32 * settings.max_queries_per_owner),
        Lane.UPLOAD: Crowd(settings.max_uploads_per_owner, 0),
        Lane.UNPACKING: Crowd(1, settings.max_uploads_per_owner + settings.max_preflights_per_owner),
        Lane.PREFLIGHT: Crowd(settings.max_preflights_per_owner, 0),
        Lane.STREAM: Crowd(settings.max_streams_per_owner, 0),
        Lane.DOWNLOAD: Crowd(settings.max_downloads_per_owner, 0),
    }
