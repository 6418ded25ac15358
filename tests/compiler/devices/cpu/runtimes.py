"""Plans of small networks as programs, around the runtime as it is or with a line of it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.zoo import build
from compiler.codegen.build import Objects, find_toolchain
from compiler.codegen.calls import workload_of
from compiler.codegen.weights import Weights
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.emit.host import host_source
from compiler.devices.cpu.emit.library import build_library, runtime_headers
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.emit.program import kernel_sources, lower_calls
from compiler.devices.cpu.emit.regions import KernelRegions
from compiler.devices.cpu.target import this_machine
from compiler.devices.kinds import propose
from compiler.encodings.aside import Octets
from compiler.errors import VerifyError
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Port, Program
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.pack.bare import lay_out
from compiler.pack.pack import WEIGHTS
from compiler.rewrite import rewrite
from compiler.schedule import schedule
from compiler.tuning.tune import workload_key
from tests.compiler.networks import Network, graph_of

TARGET = this_machine()
HANDOVER_S = 1e-7


def branchy() -> KernelGraph:
    """Three branches of a convolution and a pooling each, of different cost, added."""
    net = Network()
    x = net.input(1, 8, 12, 12)
    ends = []
    for kernel in (1, 3, 5):
        pads = [kernel // 2] * 4
        y = net.node("Conv", [x, net.weight(16, 8, kernel, kernel)], (1, 16, 12, 12), pads=pads)
        ends.append(net.node("MaxPool", [y], (1, 16, 12, 12), kernel_shape=[3, 3], pads=[1] * 4))
    sums = net.node("Add", ends[:2], (1, 16, 12, 12))
    out = net.node("Softmax", [net.node("Add", [sums, ends[2]], (1, 16, 12, 12))], (1, 16, 12, 12))
    return fuse(graph_of(net.model([out]))).kernels


def inception() -> KernelGraph:
    """Blocks of four branches that are concatenated."""
    return fuse(rewrite(graph_of(build("tiny_inception"))).graph).kernels


NETWORKS: Mapping[str, Callable[[], KernelGraph]] = {"branchy": branchy, "inception": inception}


def plans_of(kernels: KernelGraph, lanes: int) -> list[Plan]:
    """All different plans that schedulers find for so many lanes, of kernels that take a millisecond each.

    Tasks wait for the bytes that they read.
    """
    menus = []
    for call in kernels.calls:
        workload = workload_of(kernels, call)
        tile = propose(workload, TARGET, lanes)[0].tile
        variants = (Variant(tile, count_tiles(workload, tile, TARGET), 1, Cost(1e-3, "model")),)
        menus.append(Menu(workload_key(workload), variants))
    found = schedule(kernels, menus, lanes, LaneCosts(HANDOVER_S), regions=KernelRegions(kernels, TARGET))
    return list({one.plan.tasks: one.plan for one in found if one.plan.lanes == lanes}.values())


def without_a_wait(kernels: KernelGraph, plan: Plan) -> list[Plan]:
    """The plan with one wait less, for each wait that it cannot do without."""
    less, regions = [], KernelRegions(kernels, TARGET)
    for at, task in enumerate(plan.tasks):
        for wait in task.waits:
            waits = tuple(other for other in task.waits if other != wait)
            tasks = (*plan.tasks[:at], replace(task, waits=waits), *plan.tasks[at + 1 :])
            broken = replace(plan, tasks=tasks)
            try:
                broken.verify(kernels, regions)
            except VerifyError:
                less.append(broken)
    return less


def inputs_of(kernels: KernelGraph, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    types = [kernels.buffers[id].type for id in kernels.inputs]
    return [random.standard_normal(type.dims).astype(type.dtype.numpy) for type in types]


@dataclass
class Workshop:
    """Builds programs of one kernel graph; kernels are compiled once for all of them."""

    kernels: KernelGraph
    changes: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """For a runtime header pieces of text that must be in it once, and what takes their places."""
    objects: Objects = field(default_factory=dict)
    known: dict[tuple[Workload, Tile], Lowered] = field(default_factory=dict)

    def sources(self, plans: Sequence[Plan]) -> tuple[dict[str, str], Octets]:
        """All files of a program that holds these plans, and its weights."""
        lowered = [lower_calls(self.kernels, plan, TARGET, self.known) for plan in plans]
        weights = Weights()
        host = host_source(self.kernels, plans, lowered, weights, TARGET)
        units = kernel_sources(list({kernel.name: kernel for one in lowered for kernel in one}.values()))
        headers = runtime_headers()
        for name, changes in self.changes.items():
            for text, instead in changes:
                assert headers[name].count(text) == 1, f"{text!r} is not in {name} once"
                headers[name] = headers[name].replace(text, instead)
        return {**headers, "model.c": host, **units}, weights.bytes()

    def program(self, plans: Sequence[Plan]) -> Program:
        sources, weights = self.sources(plans)
        toolchain = find_toolchain()
        library = build_library(sources, TARGET, toolchain, optimise="-O1", objects=self.objects)
        inputs, outputs = Port.of(self.kernels, self.kernels.inputs), Port.of(self.kernels, self.kernels.outputs)
        return Program(sources, library, weights, inputs, outputs, toolchain.identity(TARGET))

    def folder(self, plans: Sequence[Plan], place: Path) -> Path:
        """A folder that the loader opens with `verify=False`."""
        program = self.program(plans)
        place.mkdir()
        (place / "constants").write_bytes(program.weights)
        lay_out(program, plans[0], TARGET.name, place / "constants", place / "model")
        assert (place / "model" / WEIGHTS).exists()
        return place / "model"
