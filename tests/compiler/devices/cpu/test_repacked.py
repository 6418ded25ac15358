from __future__ import annotations

from dataclasses import replace

from compiler.codegen.calls import workload_of
from compiler.codegen.weights import Weights
from compiler.devices.cpu.emit.lower import count_tiles, lower
from compiler.devices.cpu.repacked import repacked_bytes
from compiler.devices.cpu.target import this_machine
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.plans.plan import Plan
from tests.compiler.networks import Network, graph_of

TARGET = replace(this_machine(), lanes=2)


def test_weights_grow_by_what_the_second_plan_wants_packed_in_another_way() -> None:
    """Each pair of tiles of a convolution, against a weights file into which both plans put their constants."""
    net = Network()
    x = net.node("Conv", [net.input(1, 32, 14, 14), net.weight(48, 32, 3, 3)], (1, 48, 14, 14), pads=[1] * 4)
    kernels = fuse(graph_of(net.model([x]))).kernels
    position = max(range(len(kernels.calls)), key=lambda at: len(kernels.calls[at].inputs))
    call = kernels.calls[position]
    workload = workload_of(kernels, call)
    proposed = [one.tile for one in propose(workload, TARGET, 2)[:12]]
    tiles = {id: [workload_of(kernels, one)] for id, one in enumerate(kernels.calls)}
    assert len(proposed) > 1

    def plan(tile: object) -> Plan:
        chosen = []
        for at, (of,) in tiles.items():
            one = tile if at == position else propose(of, TARGET, 2)[0].tile
            chosen.append((one, count_tiles(of, one, TARGET)))  # type: ignore[arg-type]
        return Plan(2, (), tuple(chosen), {}, 0, "")  # type: ignore[arg-type]

    def stored(*of: object) -> int:
        weights = Weights(alignment=1)
        for tile in of:
            packings = lower("f", workload, tile, TARGET).packings  # type: ignore[arg-type]
            for at, id in enumerate(call.inputs):
                if id in kernels.constants:
                    weights.place(kernels.buffers[id], kernels.constants[id], packings.get(at))
        return weights.size

    grown = {repacked_bytes(kernels, plan(one), plan(two), TARGET) for one in proposed for two in proposed}
    wanted = {stored(one, two) - stored(one) for one in proposed for two in proposed}
    assert grown == wanted
    assert repacked_bytes(kernels, plan(proposed[0]), plan(proposed[0]), TARGET) == 0
