"""Which outputs of a model are, by their names, inputs of its next run: the states that `carry: "auto"` takes.

The names are those that exporters of decoders give (`past_key_values.0.key` and `present.0.key`), and those of models
for speech: `state` and `stateN`, `h` or `h0` and `hn`, `cache_0` and `cache_0_out`, `in_cache0` and `out_cache0`,
`cached_len` and `new_cached_len`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

WORDS = {"c", "cache", "cached", "caches", "cell", "cn", "cx", "h", "hidden", "hn", "hx"}
WORDS |= {"mem", "memory", "past", "state", "states"}
"""One of these is in the name of a state: without it `image` and `image_out` would be one."""
MADE = re.compile(r"(?:next|new|out|output|updated)_(.+)|(.+)_(?:next|new|out|output|updated|n)|(.+?)[nN]")
READ = re.compile(
    r"(?:prev|previous|in|input|init|initial|old)_(.+)|(.+)_(?:prev|previous|in|input|init|initial|old)|([hc])_?0"
)


def suggested_pairs(outputs: Mapping[str, object], inputs: Mapping[str, object]) -> dict[str, str]:
    """Pairs of an output and the input that it is in the next run, by name; the mappings say of what type each is.

    Only those of one type, if it is known, and none of a name that fits several.
    """
    found = [
        (out, into)
        for out, made in outputs.items()
        for into, read in inputs.items()
        if made is not None and made == read and out != into and _is_state(into) and _stems(out) & _read_stems(into)
    ]
    outs, intos = Counter(out for out, _ in found), Counter(into for _, into in found)
    return {out: into for out, into in sorted(found) if outs[out] == intos[into] == 1}


def _is_state(name: str) -> bool:
    return not WORDS.isdisjoint(re.findall("[a-z]+", name.lower()))


def _stems(output: str) -> frozenset[str]:
    """What the input may be called that an output is next."""
    past = (re.sub(r"(?i)present", word, output) for word in ("past", "past_key_values", "past_key_value"))
    return frozenset({*_without(MADE, output), *past} - {output})


def _read_stems(input: str) -> frozenset[str]:
    return frozenset({input, *_without(READ, input)})


def _without(mark: re.Pattern[str], name: str) -> Iterator[str]:
    """A name without the mark that says whether it is the old state or the new one."""
    if found := mark.fullmatch(name):
        yield next(part for part in found.groups() if part)
