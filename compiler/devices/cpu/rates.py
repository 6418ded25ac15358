"""What a machine's cores do per nanosecond: facts that a cost model divides work by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Sustained rates of one core; where cores share a level, `all_` is what all of them together reach.

    `fma_per_ns` counts fp32 multiply-adds of a whole vector, the others bytes read. The defaults suit no machine in
    particular: of a target that cannot be measured only their ratios decide anything, and those vary little.
    """

    fma_per_ns: float = 5.0
    l1_per_ns: float = 300.0
    l2_per_ns: float = 100.0
    l3_per_ns: float = 40.0
    memory_per_ns: float = 12.0
    all_l3_per_ns: float = 60.0
    all_memory_per_ns: float = 20.0
    measured: bool = False
    """On the machine at hand."""
    in_memory: bool = False
    """Of a model's constants: whether they are too many to stay in the last cache from one run to the next."""

    dots_per_fma: float | None = None
    """Dot products of bf16 pairs in the time of one multiply-add; None where that was not measured. Cores that make
    two multiply-adds in a cycle make one or two of them."""

    @property
    def weights_per_ns(self) -> float:
        """Bytes of constants that arrive where a kernel reads them for the first time in a run."""
        return self.memory_per_ns if self.in_memory else self.l3_per_ns

    @staticmethod
    def of_cycles(ghz: float, *, fma: float, l1: float, l2: float, l3: float, memory: float) -> Rates:
        """Of a core with published figures: vector multiply-adds and bytes read per cycle.

        Cores together are taken to read twice as much of a level that they share, and half as much again of memory.
        """
        return Rates(
            fma_per_ns=ghz * fma,
            l1_per_ns=ghz * l1,
            l2_per_ns=ghz * l2,
            l3_per_ns=ghz * l3,
            memory_per_ns=ghz * memory,
            all_l3_per_ns=2 * ghz * l3,
            all_memory_per_ns=1.5 * ghz * memory,
        )

    @staticmethod
    def modest(vector_floats: int) -> Rates:
        """Of an unknown machine with vectors of that width.

        Its first-level cache delivers two of them with each pair of multiply-adds.
        """
        return Rates(l1_per_ns=24.0 * vector_floats, l2_per_ns=8.0 * vector_floats)
