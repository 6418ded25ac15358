"""The parts of a multipart body as the parser meets them: files to the blob store, options to memory."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from compiler.contract import MOST_SAMPLES
from service.blobs.store import Blobs, BlobWriter, StoredBlob
from service.errors import BadRequest, BodyTooLarge
from service.http.multipart.parser import Multipart
from service.jobs.storage.bundle import MOST_FILES, Bundle, demand_distinct, relative_path
from service.jobs.storage.samples import SampleFile, sample_name

MODEL, DATA, OPTIONS = "model", "data", "options"
DIGEST, SAMPLES = "digest", "samples"
BENCHMARK = "benchmark"
TEXTS = (OPTIONS, DIGEST, BENCHMARK)
MAX_OPTIONS_BYTES = 1 << 20


class Parts:
    """`model` once, `data` any number of times with its relative path as filename, and what else is in `known`.

    With `digest`, of a model that was uploaded, there is no `model`, nor where a `benchmark` is asked for; `samples`
    come with their names as filenames.

    A file's bytes go to a blob as they come; one of `data` or `samples` is kept when its part ends. Leaving the `with`
    block drops what is not kept. limit: bytes of all files together. patience_s: seconds from the first of them that
    was kept to the end, which bounds how old a blob is that no row names yet (`service.jobs.operations.retention`).
    """

    def __init__(
        self, blobs: Blobs, boundary: bytes | None, known: Collection[str], *, limit: int, patience_s: float
    ) -> None:
        self._form = Multipart(boundary, begin=self._begin, data=self._bytes, end=self._end)
        self._blobs = blobs
        self._known = known
        self._limit = limit
        self._patience_s = patience_s
        self._first_kept: float | None = None
        self._size = 0
        self._model: BlobWriter | None = None
        self._data: dict[str, StoredBlob] = {}
        self._samples: dict[str, StoredBlob] = {}
        self._writer: BlobWriter | None = None
        self._texts: dict[str, bytearray] = {}
        self._part = self._path = ""

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in (self._model, self._writer):
            if writer is not None:
                writer.__exit__(None, None, None)

    def feed(self, chunk: bytes) -> None:
        """Parse more of the body. Raises `BadRequest`, `BodyTooLarge` and `StorageUnavailable`."""
        self._form.feed(chunk)

    def keep(self) -> Bundle | None:
        """The model's files, now that the body has ended; None where its digest stands for it.

        Raises `BadRequest` and `StorageUnavailable`.
        """
        self._form.demand_end()
        if BENCHMARK in self._known:
            if BENCHMARK not in self._texts:
                raise BadRequest(
                    f"the part {BENCHMARK!r} is missing", fix='send {"artifacts": [...]} as JSON in a part of that name'
                )
        elif DIGEST in self._texts:
            if self._model is not None or self._data:
                raise BadRequest("a model and a digest were sent", fix="send either of them")
        elif self._model is None or self._model.size == 0:
            raise BadRequest("the model is missing or empty", fix="send its bytes as the part 'model'")
        demand_distinct(self._data)
        if self._first_kept is not None and time.monotonic() - self._first_kept > self._patience_s:
            raise BadRequest(
                f"the multipart body took longer than {self._patience_s:.0f} s", fix="send a zip through POST /uploads"
            )
        return None if self._model is None else Bundle(self._model.commit(), dict(self._data))

    def text(self, name: str) -> bytes | None:
        """The text of the part `options`, `digest` or `benchmark`; None when there was none."""
        return None if name not in self._texts else bytes(self._texts[name])

    @property
    def samples(self) -> tuple[SampleFile, ...]:
        """In the order in which they came."""
        return tuple(SampleFile(name, blob) for name, blob in self._samples.items())

    def _begin(self, name: str, filename: str) -> None:
        self._part, self._path = name, filename
        listed = " and ".join(repr(name) for name in self._known)
        if self._part not in self._known:
            raise BadRequest(f"unknown part {self._part!r:.60}", fix=f"send the parts {listed} only")
        if self._part == DATA:
            self._begin_data()
        elif self._part == SAMPLES:
            self._begin_sample()
        elif self._part in self._texts or (self._part == MODEL and self._model is not None):
            raise BadRequest(f"part {self._part!r} was sent twice", fix="send it once")
        elif self._part == MODEL:
            self._model = self._blobs.writer()
        else:
            self._texts[self._part] = bytearray()

    def _begin_data(self) -> None:
        if not self._path:
            raise BadRequest("a part 'data' has no filename", fix="give its path relative to the model as filename")
        self._path = relative_path(self._path)
        demand_distinct((*self._data, self._path) if self._path in self._data else (self._path,))
        if len(self._data) >= MOST_FILES:
            raise BadRequest(f"more than {MOST_FILES} parts 'data'", fix="put the data into fewer files")
        self._writer = self._blobs.writer()

    def _begin_sample(self) -> None:
        self._path = sample_name(self._path, len(self._samples))
        if self._path in self._samples:
            raise BadRequest(f"sample {self._path!r:.120} was sent twice", fix="give each its own filename")
        if len(self._samples) >= MOST_SAMPLES:
            raise BadRequest(f"more than {MOST_SAMPLES} parts 'samples'", fix="send fewer samples")
        self._writer = self._blobs.writer()

    def _bytes(self, data: bytes) -> None:
        if self._part in TEXTS:
            text = self._texts[self._part]
            text += data
            if len(text) > MAX_OPTIONS_BYTES:
                raise BodyTooLarge(f"the options are larger than {MAX_OPTIONS_BYTES} bytes", fix="name fewer inputs")
            return
        writer = self._model if self._part == MODEL else self._writer
        assert writer is not None, "its headers are read"
        self._size += len(data)
        if self._size > self._limit:
            raise too_large(self._limit)
        writer.write(data)

    def _end(self) -> None:
        if self._part in (DATA, SAMPLES) and self._writer is not None:
            with self._writer as writer:
                (self._data if self._part == DATA else self._samples)[self._path] = writer.commit()
            self._writer = None
            self._first_kept = self._first_kept or time.monotonic()


def too_large(limit: int) -> BodyTooLarge:
    """What to raise for files of more than `limit` bytes."""
    return BodyTooLarge(
        f"the upload is larger than {limit} bytes",
        fix="send a smaller file, or raise TILEWRIGHT_MAX_MODEL_BYTES",
        details={"limit_bytes": limit},
    )
