"""A model as far as its kernels are decided: operators, nodes after rewriting, choices made, kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.devices.device import Backend
from compiler.frontend import load
from compiler.fuse import fuse
from compiler.fuse.fuse import Fused
from compiler.fuse.joins import Join
from compiler.ir.buffers import KernelGraph
from compiler.ops import OPERATORS
from compiler.request import Host
from compiler.rewrite import rewrite
from compiler.rewrite.choose import Chosen
from compiler.session import Session
from compiler.steps.choosing import evaluate_choices
from compiler.steps.costs.kernels import offered_joins


@dataclass(frozen=True)
class Stages:
    """What the first steps of a compilation made of a model of so many `operators`.

    stored   the kernels with the elements that the precision keeps in memory
    offered  of these, kernels of which measurements will say whether they become one
    backend  with what the records say of its device
    """

    operators: int
    chosen: Chosen
    fused: Fused
    stored: KernelGraph
    offered: tuple[Join, ...]
    backend: Backend

    @property
    def kernels(self) -> KernelGraph:
        """The kernels after fusion."""
        return self.fused.kernels

    @property
    def families(self) -> Mapping[str, int]:
        """How many kernels there are of each family, most first."""
        counted = Counter(call.kernel.family for call in self.kernels.calls)
        return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))


def stages(one: Subject, options: CompileOptions, records: Sequence[Mapping[str, Any]] = ()) -> Stages:
    """As a compilation does it that measures nothing: choices are made by `records` and the cost model.

    Raises what it raises.
    """
    session = Session.of(options, Host(records, measure=False))
    without = session.kept.without_steps
    graph = load(one.file, options, OPERATORS).graph
    rewritten = rewrite(graph, rules=session.kept.rules).graph
    evaluated = evaluate_choices(session, rewritten)
    fused = fuse(evaluated.chosen.graph, without)
    stored = session.backend.stored(fused.kernels, options.arithmetic)
    offered = offered_joins(stored, evaluated.kernels, without)
    return Stages(len(graph.nodes), evaluated.chosen, fused, stored, offered, session.backend)


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
