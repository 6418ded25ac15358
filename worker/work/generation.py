"""Have a decoder's artifact go on with a prompt; its tokens are told as they come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from compiler.contract import TOKENS, Event
from compiler.errors import InputsError, InternalError
from compiler.measure.npz import described, read_inputs, write_outputs
from compiler.pack.loader import OpenSpec, RunError, Size
from compiler.runner import is_whole, open_artifact
from tilewright.errors import UsageError
from tilewright.generation.generate import ended, most
from tilewright.generation.generate import generate as tokens_after
from tilewright.generation.ports import ports

if TYPE_CHECKING:
    from compiler.pack.loader import Model
    from tilewright.loading import Model as Decoder
    from worker.attempt.child import Outbox, Spec

TOLD_EVERY_S = 0.1
"""Tokens wait so long for others, but for the first one."""
MOST_TOLD = 256
"""Tokens of one event."""
LONGEST = 1 << 20
PROMPT = OpenSpec("ids", "int64", (LONGEST,), (Size("tokens", 0, 1, LONGEST),))


def generate(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report. The prompt is `ids` [tokens] of the inputs, the output `tokens` [tokens].

    Raises InputsError for an artifact that is no decoder, and for a prompt that it cannot read.
    """
    (_, artifact), _ = spec.inputs
    if is_whole(artifact):
        raise InputsError("an artifact for an accelerator generates no text", fix="compile the decoder for cpu")
    try:
        with open_artifact("the artifact", artifact, spec.options.get("threads")) as model:
            return _generated(model, spec, outbox)
    except UsageError as error:
        raise InputsError(error.message, fix=error.fix) from error
    except RunError as reason:
        raise InternalError(f"the artifact failed: {reason}") from reason


def _generated(model: Model, spec: Spec, outbox: Outbox) -> dict[str, Any]:
    asked = spec.options["generate"]
    decoder = cast("Decoder", model)
    found = ports(decoder)
    ids: list[int] = read_inputs(spec.inputs[1][1], [PROMPT])[0].tolist()
    # A job that is tried again says the same again.
    coming = tokens_after(decoder, ids, seed=spec.options.get("seed", 0), **asked)
    begin = time.perf_counter()
    tokens: list[int] = []
    told, told_at, first_s = 0, -TOLD_EVERY_S, 0.0

    def tell() -> None:
        data = {"first": told, "tokens": tokens[told:]}
        outbox.event(Event(TOKENS, "run", round(len(tokens) / asked["max_tokens"], 4), data=data))

    for token in coming:
        tokens.append(token)
        now = time.perf_counter() - begin
        first_s = first_s or now
        if now - told_at >= TOLD_EVERY_S or len(tokens) - told == MOST_TOLD:
            tell()
            told, told_at = len(tokens), now
    if told < len(tokens):
        tell()
    made = {"tokens": np.array(tokens, np.int64)}
    write_outputs(spec.output, made)
    return {
        "seconds": time.perf_counter() - begin,
        "load_s": model.load_seconds,
        "lanes": model.lanes,
        "outputs": described(made, {"tokens": "int64"}),
        "prompt_tokens": len(ids),
        "first_s": first_s,
        "stopped": ended(tokens, asked["stop"], most(found, ids), asked["max_tokens"]),
    }
