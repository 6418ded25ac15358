"""Whether what a task reads has come into the memory that it reads from.

This is the check of the copies in a plan for several devices. Calls write each byte of a storage once, so that a byte
has one value, and lies in a memory once it was written there or copied there from a memory in which it lay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from compiler.errors import VerifyError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.accesses import Access
from compiler.ir.plans.races import Step, before_in_graph


@dataclass(frozen=True)
class _Origin:
    """Where bytes [begin, end) of a storage have their value first.

    What a step writes, or what is there before any begins.
    """

    step: Step | None
    memories: frozenset[int]
    begin: int
    end: int


@dataclass(frozen=True)
class _Copying:
    """A copy with what it reads and what it writes."""

    step: Step
    source: Access
    target: Access


def verify_transfers(
    steps: Sequence[Step],
    kernels: KernelGraph,
    filled: Collection[tuple[int, int]],
    asked: Sequence[tuple[int, int]],
) -> None:
    """Raises VerifyError for what is read where it was not written or copied to in time.

    That concerns all that tasks read, and all that the caller is given. `filled` has the (storage, memory) with
    contents before any task runs, `asked` those that are read when all tasks have run. What a copy and another task
    touch at the same place, one of them writing, must be ordered.
    """
    for storage in dict.fromkeys(access.storage for step in steps for access in step.accesses):
        _Storage(storage, steps, filled, kernels).verify([memory for other, memory in asked if other == storage])


class _Storage:
    """All that touches one storage."""

    def __init__(
        self, storage: int, steps: Sequence[Step], filled: Collection[tuple[int, int]], kernels: KernelGraph
    ) -> None:
        self.storage, self.kernels = storage, kernels
        self.touches = [(step, access) for step in steps for access in step.accesses if access.storage == storage]
        self.copies = [_Copying(step, *step.accesses) for step, access in self.touches if _copies_from(step, access)]
        self.origins = [
            _Origin(step, frozenset({access.memory}), access.begin, access.end)
            for step, access in self.touches
            if access.writes and step.call is not None
        ]
        if there := frozenset(memory for other, memory in filled if other == storage):
            self.origins.append(_Origin(None, there, 0, max(access.end for _, access in self.touches)))

    def verify(self, asked: Sequence[int]) -> None:
        """Raises VerifyError for what is read where it is not.

        `asked` are the memories in which the caller reads all of it at the end.
        """
        for step, access in self.touches:
            if not access.writes:
                self._verify_read(step, access)
        self._verify_order()
        for memory in asked:
            for origin in self.origins:
                if not self._arrives(None, memory, origin.begin, origin.end, origin):
                    raise self._missing("the caller", memory, origin.begin, origin.end, origin)

    def _verify_read(self, step: Step, access: Access) -> None:
        meant = [
            origin
            for origin in self.origins
            if origin.begin < access.end
            and access.begin < origin.end
            and (origin.step is None or before_in_graph(origin.step, step))
        ]
        if step.call is None and not meant:
            raise VerifyError(
                f"{step.named(self.kernels)} reads bytes {access.begin}..{access.end}, which nothing ever writes"
            )
        for origin in meant:
            begin, end = max(origin.begin, access.begin), min(origin.end, access.end)
            if not self._arrives(step, access.memory, begin, end, origin):
                raise self._missing(step.named(self.kernels), access.memory, begin, end, origin)

    def _arrives(self, by: Step | None, memory: int, begin: int, end: int, origin: _Origin) -> bool:
        """Whether bytes of an origin are in a memory when a step begins, or, for None, at the end."""
        if memory in origin.memories:
            return by is None or origin.step is None or by.follows(origin.step)
        reached = begin
        for first, last in sorted(self._brought(by, memory, begin, end, origin)):
            if first > reached:
                return False
            reached = max(reached, last)
        return reached >= end

    def _brought(
        self, by: Step | None, memory: int, begin: int, end: int, origin: _Origin
    ) -> Iterator[tuple[int, int]]:
        """Parts of the bytes of an origin that copies bring into a memory before a step begins."""
        for copy in self.copies:
            first, last = max(begin, copy.target.begin), min(end, copy.target.end)
            in_time = copy.target.memory == memory and (by is None or by.follows(copy.step))
            if in_time and first < last and self._arrives(copy.step, copy.source.memory, first, last, origin):
                yield first, last

    def _missing(self, reader: str, memory: int, begin: int, end: int, origin: _Origin) -> VerifyError:
        what = f"{reader} reads bytes {begin}..{end} of storage s{self.storage} in memory {memory}"
        if memory in origin.memories:
            assert origin.step is not None
            return VerifyError(
                f"{what}, and nothing makes it wait for {origin.step.named(self.kernels)}, which writes them"
            )
        lie = f"lie in memory {', '.join(map(str, sorted(origin.memories)))}"
        some = any(copy.target.memory == memory for copy in self.copies)
        how = "no copy that has ended by then brings all of them" if some else "no copy brings them"
        return VerifyError(f"{what}, which {lie}, and {how}")

    def _verify_order(self) -> None:
        for copy in self.copies:
            for step, access in self.touches:
                for own in (copy.source, copy.target):
                    if (
                        step is not copy.step
                        and access.memory == own.memory
                        and (access.writes or own.writes)
                        and access.begin < own.end
                        and own.begin < access.end
                        and not (step.follows(copy.step) or copy.step.follows(step))
                    ):
                        raise VerifyError(
                            f"{step.named(self.kernels)} on lane {step.lane} "
                            f"and {copy.step.named(self.kernels)} on lane {copy.step.lane} "
                            f"touch the same bytes of memory {own.memory}, "
                            "one of them writes, and neither waits for the other"
                        )


def _copies_from(step: Step, access: Access) -> bool:
    """Whether this is the reading side of a copy."""
    return step.call is None and not access.writes
