"""A machine that runs PTX: one unit with its memory, whose kernels are launched one after another.

Written from the PTX ISA manual alone, and independent of the double of CUDA: it takes what NVRTC emits, and shares no
table of layouts with what was written for g++.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tests.ptx import arithmetic, asynchronous, control, products, transfers, warps
from tests.ptx.decode import Decoder, link, parameter_at
from tests.ptx.fault import Fault
from tests.ptx.gang import Code, Gang, Launch
from tests.ptx.memory import GlobalMemory
from tests.ptx.parse import BYTES, Variable, parse
from tests.ptx.values import UNSIGNED, literal

DECODERS: Mapping[str, Decoder] = {
    **arithmetic.DECODERS,
    **transfers.DECODERS,
    **control.DECODERS,
    **warps.DECODERS,
    **products.DECODERS,
    **asynchronous.DECODERS,
}
MOST_THREADS = 1024
"""Of the blocks that are carried out together."""
MEMORY = 1 << 26


class Machine:
    """A unit of PTX and its device memory, which several units may share.

    `resident` is how many clusters of a launch are resident at a time, as many as MOST_THREADS where it is 0; `races`
    says whether accesses to shared memory are checked for being ordered, `between` whether those to global memory are
    too, by blocks that are resident together.
    """

    def __init__(
        self,
        text: str,
        memory: GlobalMemory | None = None,
        resident: int = 0,
        races: bool = True,
        between: bool = False,
    ) -> None:
        self.module = parse(text)
        self.memory = memory or GlobalMemory(MEMORY)
        self.resident, self.races, self.between = resident, races, between
        self.maps: dict[bytes, object] = {}
        self.codes: dict[str, Code] = {}
        self.addresses = {name: self._placed(one) for name, one in self.module.variables.items()}
        self.steps = 0

    def _placed(self, one: Variable) -> int:
        """Memory for a variable, which is zero where nothing says otherwise."""
        address = self.memory.allocate(max(one.bytes, 1))
        values = np.zeros(one.count, UNSIGNED[BYTES[one.type]])
        for at, text in enumerate(one.initial):
            values[at] = literal(text, one.type)
        self.memory.put(address, values.view(np.uint8))
        return address

    def code(self, name: str) -> Code:
        """A kernel, made ready once. Raises Fault."""
        if name not in self.codes:
            self.codes[name] = link(self.module, name, self.addresses, DECODERS)
        return self.codes[name]

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[bytes],
        shared_bytes: int = 0,
        cluster: int = 1,
    ) -> None:
        """Run a kernel to its end. `arguments` are the bytes of each parameter. Raises Fault."""
        code = self.code(name)
        launch = Launch(
            *(extent(grid), extent(block), self._parameters(name, arguments), shared_bytes, cluster, self.maps),
            self.races,
            self.between,
        )
        blocks, threads = prod(launch.grid), prod(launch.block) * cluster
        if blocks % cluster:
            raise Fault("launch", f"{blocks} blocks are no whole clusters of {cluster}")
        clusters = blocks // cluster
        at_once = self.resident or max(1, MOST_THREADS // threads)
        with np.errstate(all="ignore"):
            for first in range(0, clusters, at_once):
                gang = Gang(code, launch, self.memory, first, min(first + at_once, clusters))
                gang.run()
                self.steps += gang.steps

    def _parameters(self, name: str, arguments: Sequence[bytes]) -> np.ndarray:
        function = self.module.functions[name]
        places = parameter_at(function)
        if len(arguments) != len(function.parameters):
            raise Fault("launch", f"{name} has {len(function.parameters)} parameters, not {len(arguments)}")
        octets = bytearray(sum(one.bytes + one.align for one in function.parameters))
        for one, given in zip(function.parameters, arguments, strict=True):
            if len(given) < one.bytes:
                raise Fault("launch", f"parameter {one.name} has {one.bytes} bytes, not {len(given)}")
            octets[places[one.name] : places[one.name] + one.bytes] = given[: one.bytes]
        return np.frombuffer(bytes(octets), np.uint8)


def extent(of: Sequence[int]) -> tuple[int, int, int]:
    """Three numbers, the missing ones 1."""
    x, y, z = (*of, 1, 1)[:3]
    return int(x), int(y), int(z)
