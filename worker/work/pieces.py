"""Have an artifact give an output in pieces; each is told as soon as it is there."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.contract import MOST_PIECE_BYTES, MOST_PIECES, MOST_PIECES_BYTES, PIECE, Event
from compiler.errors import InputsError, InternalError
from compiler.measure.npz import described, read_inputs, write_outputs
from compiler.pack.loader import RunError
from compiler.runner import is_whole, open_artifact

if TYPE_CHECKING:
    from compiler.pack.loader import Model
    from worker.attempt.child import Outbox, Spec

WITHOUT = "the artifact gives no output in pieces"
COMPILED = 'compile the model with chunks, such as {"chunks": {"sound": 8192}}, or leave pieces out'


def tell_pieces(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report. The one output that is written is the one that comes in pieces, all of them joined.

    Raises InputsError for an artifact without the option `chunks`, and for inputs that do not fit.
    """
    (_, artifact), _ = spec.inputs
    if is_whole(artifact):
        raise InputsError(WITHOUT, fix=COMPILED)
    try:
        with open_artifact("the artifact", artifact, spec.options.get("threads")) as model:
            if "chunks" not in model.manifest:
                raise InputsError(WITHOUT, fix=COMPILED)
            return _told(model, spec, outbox)
    except RunError as reason:
        raise InternalError(f"the artifact failed: {reason}") from reason


def _told(model: Model, spec: Spec, outbox: Outbox) -> dict[str, Any]:
    said = model.manifest["chunks"]
    (output,) = (one for one in model.outputs if one.name == said["output"])
    inputs = read_inputs(spec.inputs[1][1], model.inputs)
    named = {one.name: array for one, array in zip(model.inputs, inputs, strict=True)}
    begin = time.perf_counter()
    pieces: list[np.ndarray] = []
    first_s = 0.0
    told = _Told(outbox, output.name, said["axis"])
    for piece in model.chunks(named, seed=spec.options.get("seed")):
        first_s = first_s or time.perf_counter() - begin
        pieces.append(piece if piece.dtype == output.numpy else piece.view(output.numpy))
        told.tell(pieces[-1])
    seconds = time.perf_counter() - begin
    made = {output.name: np.concatenate(pieces, said["axis"])}
    write_outputs(spec.output, made)
    return {
        "seconds": seconds,
        "load_s": model.load_seconds,
        "lanes": model.lanes,
        "outputs": described(made, {output.name: output.dtype}),
        "first_s": first_s,
        "pieces": len(pieces),
    }


class _Told:
    """Pieces of an output as events, until there are as many as one inference may leave."""

    def __init__(self, outbox: Outbox, output: str, axis: int) -> None:
        self._outbox = outbox
        self._about = {"output": output, "axis": axis}
        self._axis = axis
        self._first = 0
        self._events = 0
        self._bytes = 0

    def tell(self, piece: np.ndarray) -> None:
        """In as many events as its bytes need."""
        for part in self._parts(piece):
            self._events += 1
            self._bytes += part.nbytes
            if self._events <= MOST_PIECES and self._bytes <= MOST_PIECES_BYTES and part.nbytes <= MOST_PIECE_BYTES:
                elements = part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()
                told = {"first": self._first, "shape": list(part.shape), "dtype": part.dtype.name}
                data = {**self._about, **told, "elements": base64.b64encode(elements).decode()}
                self._outbox.event(Event(PIECE, "run", 0.0, data=data))
                self._first += part.shape[self._axis]
            else:
                self._events = MOST_PIECES

    def _parts(self, piece: np.ndarray) -> Iterator[np.ndarray]:
        positions = piece.shape[self._axis]
        each = max(1, MOST_PIECE_BYTES * positions // max(piece.nbytes, 1))
        at = (slice(None),) * self._axis
        for begin in range(0, positions, each):
            yield piece[(*at, slice(begin, begin + each))]
