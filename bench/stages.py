"""A model as far as its kernels are decided: operators, nodes after rewriting, choices made, kernels."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.subjects import Subject
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.fuse import Fused
from compiler.fuse.joins import Join, joins, promising
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.machine import plausible
from compiler.left_out import Remaining, remaining
from compiler.ops import OPERATORS
from compiler.rewrite import rewrite
from compiler.rewrite.choose import Chosen, choose
from compiler.workbench import backend_of
from compiler.workbench.costs import kernel_costs
from compiler.workbench.graph_costs import FusedCosts


@dataclass(frozen=True)
class Stages:
    """What the first steps of a compilation made of a model of so many `operators`.

    offered  kernels of which measurements will say whether they become one
    """

    operators: int
    chosen: Chosen
    fused: Fused
    offered: tuple[Join, ...]

    @property
    def kernels(self) -> KernelGraph:
        return self.fused.kernels

    @property
    def families(self) -> Mapping[str, int]:
        """How many kernels there are of each family, most first."""
        counted = Counter(call.kernel.family for call in self.kernels.calls)
        return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))


def stages(one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]] = ()) -> Stages:
    """As a compilation does it that measures nothing: choices are made by `records` and the cost model. Raises what it raises."""
    kept = remaining(options.without)
    graph = load(one.file, options, OPERATORS).graph
    rewritten = rewrite(graph, rules=kept.rules).graph
    costs = _costs(rewritten, kept, options, records)
    chosen = choose(rewritten, costs, kept.choices, kept.rules)
    fused = fuse(chosen.graph, kept.without_steps)
    stored = costs.kernels.backend.stored(fused.kernels, options.precision)
    found = joins(stored) if "joins" not in kept.without_steps else ()
    return Stages(len(graph.nodes), chosen, fused, promising(stored, found, replace(costs.kernels, measured={})))


def _costs(graph: Graph, kept: Remaining, options: CompileOptions, records: Sequence[Mapping[str, Any]]) -> FusedCosts:
    known, backend = plausible(records), backend_of(options, os.environ)
    kernels = backend.stored(fuse(graph, kept.without_steps).kernels, options.precision)
    backend, _ = backend.prepared(kernels, known, measure=False)
    setting = backend.setting(kernels)
    lanes = options.threads or backend.target.lanes
    costs = kernel_costs(backend, backend.starting_points(known, setting), setting, lanes, options.precision)
    return FusedCosts(costs, without=kept.without_steps)


def text_of(stages: Stages) -> str:
    """Equal where the same program comes of it: values are numbered as they occur, and names play no part."""
    offers = "".join(f"\n{join.kind} {join.calls}" for join in stages.offered)
    return f"{_text(stages.kernels)}{offers}"


def _text(kernels: KernelGraph) -> str:
    numbers: dict[str, int] = {}
    nameless = re.sub(r"\bkernel [^(]*\(", "kernel (", re.sub(r'"(?:[^"\\]|\\.)*"', "", str(kernels)))
    return re.sub(
        r"\b([bs])(\d+)\b", lambda found: f"{found[1]}#{numbers.setdefault(found[2], len(numbers))}", nameless
    )
