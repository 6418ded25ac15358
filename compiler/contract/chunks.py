"""The option `chunks`: an output that is given piece by piece, and what excludes that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import OptionsError


def demand_chunks(chunks: Mapping[str, int], target: str, is_cpu: bool, beside: Sequence[str]) -> None:
    """Raises OptionsError for more than one output, another target than one CPU, and options that exclude pieces.

    beside  the options, of those that exclude pieces, that are given
    """
    if not chunks:
        return
    if len(chunks) > 1:
        raise OptionsError(
            f"chunks names {len(chunks)} outputs, and one of them can come in pieces",
            fix='name one, such as {"chunks": {"sound": 8192}}',
        )
    if not is_cpu:
        raise OptionsError(
            f"option chunks applies to one profile of CPUs, and the job is for {target}",
            fix="use a target such as cpu or cpu:x86-64-v3, or leave chunks out",
        )
    if beside:
        raise OptionsError(f"options chunks and {beside[0]} exclude each other", fix="leave one of the two out")
