"""`tilewright.generate`: the tokens that follow a prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.generation.ports import Ports
    from tilewright.generation.sampling import Sampler
    from tilewright.generation.text import Text
    from tilewright.loading import Model

MOST_TOKENS = 128


def generate(
    model: Model,
    ids: Sequence[int],
    *,
    max_tokens: int = MOST_TOKENS,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Collection[int] = (),
) -> Iterator[int]:
    """The tokens that follow `ids`, one by one as the model, a decoder with caches, finds them.

    `temperature` 0 takes the most probable token. Above it, tokens are drawn among the `top_k` most probable ones (0:
    all), of these among the fewest that together have the probability `top_p`; equal seeds draw equal tokens. The last
    token is the first of `stop`, number `max_tokens`, or the one for which the caches have no more room.

    Raises `UsageError` before anything runs: for a model that is no decoder, an empty prompt, one that is longer than
    the caches or has tokens outside the vocabulary, and numbers that make no sense. The iterator raises one of the
    model's `errors`, and `UsageError` where logits are no numbers.
    """
    from tilewright.generation.ports import ports
    from tilewright.generation.sampling import Sampler, Sampling
    from tilewright.generation.text import Text

    found = ports(model)
    sampler = Sampler(Sampling(temperature, top_k, top_p, seed))
    if max_tokens < 1:
        raise UsageError(f"max_tokens is {max_tokens}", fix="give 1 or more")
    demand_prompt(found, ids)
    return _tokens(Text(model, found), list(map(int, ids)), min(max_tokens, most(found, ids)), sampler, set(stop))


def most(ports: Ports, ids: Sequence[int]) -> int:
    """Tokens that may follow a prompt: the last of them need not be read."""
    return ports.capacity - len(ids) + 1


def demand_prompt(ports: Ports, ids: Sequence[int]) -> None:
    """Raises `UsageError` for a prompt that the model cannot read."""
    if not len(ids):
        raise UsageError("the prompt has no tokens", fix="give at least one")
    if len(ids) > ports.capacity:
        raise UsageError(
            f"the prompt has {len(ids)} tokens, and the model's caches have room for {ports.capacity}",
            fix="shorten it, or compile the model for a larger capacity (--dim past_sequence_length=...)",
        )
    if wrong := next((one for one in ids if not 0 <= one < ports.words), None):
        raise UsageError(
            f"token {wrong} is not among the {ports.words} of the model's vocabulary",
            fix=f"give 0 to {ports.words - 1}, or the tokenizer that belongs to the model",
        )


def as_input(ids: Sequence[int]) -> NDArray[Any]:
    """A prompt [tokens] as the server takes it. Raises `UsageError` for what are no tokens."""
    import numpy as np

    try:
        return np.array(ids, np.int64)
    except (OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"the prompt is no list of tokens: {error}", fix="give their numbers") from error


def ended(tokens: Sequence[int], stop: Collection[int], most: int, max_tokens: int) -> str:
    """Why the text has ended: `end`, `capacity` (`most` tokens) or `length`."""
    return "end" if tokens[-1] in stop else "capacity" if len(tokens) == most < max_tokens else "length"


def _tokens(text: Text, ids: list[int], count: int, sampler: Sampler, stop: set[int]) -> Iterator[int]:
    for left in range(count, 0, -1):
        token = sampler.take(text.read(ids))
        yield token
        if token in stop or left == 1:
            return
        ids = [token]
