"""Safe reading: bytes to `Model`. onnx's own checker, shape inference and converter never see an untrusted model."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.reading.decode import decode
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Model, quoted
from compiler.frontend.reading.string_steps import with_steps
from compiler.frontend.reading.tensors import Source
from compiler.frontend.reading.wire import walk


@dataclass
class ModelFile:
    """A model's file, which is read once, when its content is first asked for.

    data  the external data's files by path in the model; None: they are in the file's folder
    """

    path: Path
    data: Mapping[str, Path] | None = None
    _model: Model | None = field(default=None, repr=False, compare=False)

    def content(self, limits: Limits) -> Model:
        """What `read` gives; what it raises, it raises each time."""
        if self._model is None:
            self._model = read(self.path, limits, self.data)
        return self._model


def read(model: Path | bytes | ModelFile, limits: Limits, data: Mapping[str, Path] | None = None) -> Model:
    """The model of a file with its external data, or of bytes, without any.

    `data` holds the external data's files by path in the model; None: they are in the file's folder. Large tensors lie
    in files of their own (`compiler.encodings.aside`), each of which is there once as long as the model is.

    Raises MalformedModel for what is not whole ONNX, ModelTooLarge past a limit, UnsupportedModel for foreign versions.
    """
    if isinstance(model, ModelFile):
        return model.content(limits)
    proto, digest = parse(model, limits)
    file = None if isinstance(model, bytes) else model
    return with_steps(decode(proto, Source(file, limits, data), digest))


def parse(model: Path | bytes, limits: Limits) -> tuple[onnx.ModelProto, str]:
    """A file's message as it is, and the SHA-256 (hex) of its bytes. Nothing in it is checked but its size and form.

    Raises MalformedModel for what is not a whole message, ModelTooLarge past a limit.
    """
    content = model if isinstance(model, bytes) else _contents(model, limits)
    if len(content) > limits.file_bytes:
        raise ModelTooLarge(_size_message(len(content), limits), fix=_SIZE_FIX)
    if not content:
        raise MalformedModel("the file is empty", fix="send the .onnx file itself")
    walk(content, limits)
    digest = hashlib.sha256(content).hexdigest()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise MalformedModel(f"this is not an ONNX file: {error}", fix="export the model again") from None
    return proto, digest


_SIZE_FIX = "save the weights as external data (onnx.save(..., save_as_external_data=True))"


def _size_message(size: int, limits: Limits) -> str:
    return f"the model file has {size} bytes, more than {limits.file_bytes}"


def _contents(path: Path, limits: Limits) -> bytes:
    """The bytes of a regular file; a pipe is refused, not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise MalformedModel(f"{quoted(str(path))} cannot be read: {reason}", fix="check the path") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MalformedModel(f"{quoted(str(path))} is not a regular file", fix="give the path of an .onnx file")
        if status.st_size > limits.file_bytes:
            raise ModelTooLarge(_size_message(status.st_size, limits), fix=_SIZE_FIX)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
