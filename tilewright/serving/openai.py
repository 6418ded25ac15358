"""Texts as OpenAI's API has them: `/v1/embeddings` of encoders.

A model takes texts once it has a tokenizer.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response

from tilewright.batching import Texts as Packed
from tilewright.errors import UsageError
from tilewright.generation.words import Words
from tilewright.loading import Model
from tilewright.serving.chat import Chat
from tilewright.serving.served import Served, ran, told

POOLINGS = ("mean", "cls", "last")
SENTENCES = ("sentence_embedding", "sentence_embeddings", "text_embeds", "embeddings")
"""Outputs that are embeddings of whole texts already."""
IDS, MASK = ("input_ids", "ids", "tokens"), ("attention_mask", "mask")
MOST_TEXTS = 2048
"""In one request, as OpenAI has it."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Texts:
    """How a model takes texts.

    pooling  how the states of its tokens become one embedding, where the model does not say it: their mean, the first
             or the last
    chat     how messages become a prompt; None: the model was published without saying it
    """

    words: Words
    pooling: str = "mean"
    chat: Chat | None = None

    @classmethod
    def beside(cls, file: Path, pooling: str) -> Texts:
        """What a `tokenizer.json` and the files beside it say. Raises `UsageError`."""
        return cls(Words(file), pooling, Chat.beside(file))


def read(body: bytes) -> Mapping[str, Any]:
    """A request's JSON object. Raises `UsageError`."""
    try:
        plain = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}", fix="send a JSON object") from None
    if not isinstance(plain, dict):
        raise UsageError("the body is no JSON object", fix="send a JSON object")
    return plain


async def embeddings(served: Served, texts: Texts, plain: Mapping[str, Any], caller: str = "") -> Response:
    """The answer to `/v1/embeddings`: of each input a vector of length 1. Texts are run side by side, or in one run."""
    asked = given(plain.get("input"), texts.words)
    if not 0 < len(asked) <= MOST_TEXTS:
        raise UsageError(f"there are {len(asked)} inputs", fix=f"give 1 to {MOST_TEXTS}")
    coded = plain.get("encoding_format", "float")
    if coded not in ("float", "base64"):
        raise UsageError(f"encoding_format is {coded!r}", fix="give float or base64")
    fed = _fed_packed if Packed.takes(served.model) else _fed
    feeds = [fed(served.model, ids, at) for at, ids in enumerate(asked)]
    side_by_side = min(len(feeds), served.replicas)
    parts = [feeds[at::side_by_side] for at in range(side_by_side)]
    done = await asyncio.gather(*(_vectors(served, part, texts.pooling, caller) for part in parts))
    vectors: list[Array] = [done[at % side_by_side][at // side_by_side] for at in range(len(feeds))]
    tokens = sum(map(len, asked))
    answer = {
        "object": "list",
        "model": served.name,
        "data": [
            {"object": "embedding", "index": at, "embedding": _coded(one, coded)} for at, one in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return JSONResponse(answer)


async def _vectors(served: Served, feeds: Sequence[Mapping[str, Array]], pooling: str, caller: str) -> list[Array]:
    """Of texts that one run after the other has, or one run all of them."""
    if not Packed.takes(served.model):
        return await served.do(lambda model: [_pooled(ran(model, one), one, pooling) for one in feeds])
    if served.joins:
        found = await served.join(feeds, caller)
    else:
        found = await served.do(lambda model: told(model, lambda model: model.run_texts(feeds)))
    return [_pooled(one, {}, pooling) for one in found]


def given(texts: Any, words: Words) -> list[list[int]]:
    """Tokens of each input: a text, a list of texts, a list of tokens, or a list of such lists."""
    if isinstance(texts, str) or (isinstance(texts, list) and texts and isinstance(texts[0], int)):
        texts = [texts]
    if not isinstance(texts, list):
        raise UsageError("the input is no text and no list", fix="give `input` as a text or a list of texts")
    found = []
    for at, one in enumerate(texts):
        ids = words.ids(one) if isinstance(one, str) else one
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise UsageError(f"input {at} is empty, or neither a text nor tokens", fix="give a text that is not empty")
        if wrong := next((token for token in ids if not 0 <= token < words.count), None):
            raise UsageError(f"input {at} has the token {wrong} of {words.count}", fix="give tokens of this model")
        found.append(ids)
    return found


def _fed(model: Model, ids: Sequence[int], at: int) -> dict[str, Array]:
    """Inputs of an encoder for one text; where it takes no such length, padded to the least that it takes."""
    specs = {spec.name: spec for spec in model.inputs}
    tokens = next((specs[name] for name in IDS if name in specs), None)
    if tokens is None or len(tokens.shape) != 2:
        fix = "serve an encoder that takes input_ids [1, length]"
        raise UsageError(f"the model has no input of tokens among {', '.join(specs)}", fix=fix)
    least, most_tokens = _lengths(model, tokens.name)
    if len(ids) > most_tokens:
        fix = f"give at most {most_tokens}, or compile the model for longer texts (--dim)"
        raise UsageError(f"input {at} has {len(ids)} tokens, and the model takes {most_tokens}", fix=fix)
    length = max(len(ids), least)
    feeds: dict[str, Array] = {}
    for name, spec in specs.items():
        line = np.zeros((1, length), spec.numpy)
        if spec is tokens:
            line[0, : len(ids)] = ids
        elif name in MASK:
            line[0, : len(ids)] = 1
        elif "position" in name:
            line[0] = np.arange(length)
        elif "type" not in name and "segment" not in name:
            raise UsageError(f"the input {name!r} follows from no text", fix="call /v2/models/NAME/infer")
        feeds[name] = line
    if length > len(ids) and not any(name in MASK for name in feeds):
        raise UsageError(f"input {at} is shorter than the model takes, which has no mask", fix=f"give {least} tokens")
    return feeds


def _fed_packed(model: Model, ids: Sequence[int], at: int) -> dict[str, Array]:
    """Inputs of a model that takes texts of unequal lengths, for one text."""
    names = [spec.name for spec in model.inputs[:-1]]
    if (tokens := next((name for name in names if name in IDS), None)) is None:
        fix = "serve an encoder that takes input_ids"
        raise UsageError(f"the model has no input of tokens among {', '.join(names)}", fix=fix)
    most = model.manifest["open"]["texts"]["longest"]
    if len(ids) > most:
        fix = f"give at most {most}, or compile the model for longer texts (--dim)"
        raise UsageError(f"input {at} has {len(ids)} tokens, and the model takes {most}", fix=fix)
    lines = {tokens: np.asarray(ids, np.int64)}
    for name in names:
        if name != tokens and not any(part in name for part in ("position", "type", "segment")):
            raise UsageError(f"the input {name!r} follows from no text", fix="call /v2/models/NAME/infer")
        lines.setdefault(name, np.arange(len(ids)) if "position" in name else np.zeros(len(ids), np.int64))
    return lines


def _lengths(model: Model, name: str) -> tuple[int, int]:
    """The least and the most tokens of a text, over all bindings."""
    found = []
    for binding in model.bindings:
        tokens = next(spec for spec in binding.inputs if spec.name == name)
        axis = tokens.axes[1]
        found.append((tokens.shape[1], tokens.shape[1]) if axis is None else (axis.low, axis.high))
    return min(low for low, _ in found), max(high for _, high in found)


def _pooled(found: Mapping[str, Array], feeds: Mapping[str, Array], pooling: str) -> Array:
    """A vector of length 1 in float32, of a text's outputs; `feeds` may say which tokens count."""
    name = next((one for one in SENTENCES if one in found), next(iter(found)))
    states = np.asarray(found[name], np.float32)
    if not feeds:
        states = states[None]
    if states.ndim == 3:
        mask = next((feeds[name] for name in MASK if name in feeds), np.ones(states.shape[:2]))
        kept = states[0, np.flatnonzero(mask[0])]
        states = {"mean": kept.mean(0), "cls": kept[0], "last": kept[-1]}[pooling][None]
    if states.ndim != 2:
        raise UsageError(f"the output {name!r} {states.shape} is no embedding", fix="serve an encoder of texts")
    length = max(float(np.linalg.norm(states[0])), 1e-12)
    return np.asarray(states[0] / length, np.float32)


def _coded(vector: Array, how: str) -> Any:
    little = vector.astype("<f4")
    return base64.b64encode(little.tobytes()).decode() if how == "base64" else little.tolist()
