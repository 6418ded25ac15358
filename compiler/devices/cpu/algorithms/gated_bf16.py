"""The `gated_bf16` algorithm: `bf16` with a gate on the panels of B, or on the rows of A and moved to them.

Panels are packed ahead of time without the gate. A task multiplies those that it reads by the gate, in fp32, and rounds
them once more. Rows of A that are bf16 in memory are then read where they lie, instead of being scaled into a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.codegen.expressions import Emitter
from compiler.codegen.functions import decode
from compiler.devices.cpu.algorithms.algorithm import Algorithm, any_short
from compiler.devices.cpu.codegen.lowered import Lowering
from compiler.devices.cpu.products.dot import DotContraction, DotProduct, DotStep, Shape, SingleRows
from compiler.devices.cpu.products.dot.bf16 import finished, held, row_step, staged_of
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.gated import gate_on_other_operand
from compiler.forms.groups import LANE_BYTES, PAIR, Groups
from compiler.forms.normal_form import Slots
from compiler.ir.expr import Apply, Expr
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType
from compiler.ir.tile import Tile
from compiler.tuning.proposal import Proposal

SCALE_NS = 0.05
"""One element of a panel multiplied by its gate."""


@dataclass(frozen=True)
class Gated:
    """A product with its gate on B: `view` as it would be without the gate, and `gate`, over k alone."""

    workload: Workload
    view: Contraction
    gate: Expr


def gated_of(workload: Workload, target: CpuTarget) -> Gated | None:
    """The kernel with its gate on constant weights, whichever operand has it.

    None where that is not possible, and beside tiles of AMX.
    """
    if not isinstance(workload.kernel, Kernel) or not target.multiplies_bf16 or target.has_tiles:
        return None
    for kernel in (gate_on_other_operand(workload.kernel), workload.kernel):
        if kernel is not None and (found := _on_weights(replace(workload, kernel=kernel), target)) is not None:
            return found
    return None


def _on_weights(workload: Workload, target: CpuTarget) -> Gated | None:
    view = as_contraction(workload)
    if view is None or view.batch or not isinstance(view.b, Apply) or view.b.function != "mul":
        return None
    for gate, weights in (view.b.args, view.b.args[::-1]):
        plain = replace(view, b=weights)
        if gate.axes <= {*view.k} and packing_of(plain, workload, target.vector_floats):
            return Gated(workload, plain, gate)
    return None


def gated_bf16_tiles(workload: Workload, target: CpuTarget, lanes: int) -> list[Proposal]:
    """Those of dot products whose panels a task scales; empty for a kernel without a gate on a product by weights."""
    found = gated_of(workload, target)
    if found is None:
        return []
    product = DotProduct(
        "gated_bf16",
        found.view,
        group=PAIR,
        steps_per_ns=target.rates.fma_per_ns * (target.rates.dots_per_fma or 1.0),
        staged=not row_step(found.view, Slots(found.workload)),
        packed=False,
        pack_ns=SCALE_NS,
    )
    return finished(product, target).tiles(target, lanes)


def gated_bf16(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowering:
    """A kernel that `gated_of` accepts, blocked as `tile` says: levels `block` and `register`, axes m and n."""
    found = gated_of(workload, target)
    assert found is not None, "gated_bf16_tiles proposes nothing for a product without a gate"
    view, shape, slots = found.view, Shape.of(tile, found.view, target), Slots(found.workload)
    packing = packing_of(view, found.workload, shape.panel)
    assert packing is not None, "weights are constants"
    groups = Groups(packing[1], DType.BF16)
    packed, parts = (packing[0], groups), (held(target), DotStep(), SingleRows())
    operands = (packed, groups, staged_of(view.a), row_step(view, slots), *parts)
    return DotContraction(name, found.workload, view, slots, shape, target, *operands, made=GatedPanels(found.gate))


@dataclass(frozen=True)
class GatedPanels:
    """The `Panels` that a task makes of those that are packed ahead of time."""

    gate: Expr

    def make(self, product: DotContraction) -> None:
        """panels[panel - first_panel][group][column] = B[k][n] gate[k] for the task's block of columns."""
        writer, panel, lanes = product.writer, product.shape.panel, product.target.vector_floats
        assert product.packing is not None
        slot = product.workload.kernel.inputs[product.packing[0]].name
        with writer.block("for (long panel = first_panel; panel < past_panel; panel++)"):
            writer.line(f"const char *const plain = (const char *){slot} + panel * {product.panel_bytes}L;")
            writer.line(f"char *const packed = panels + (panel - first_panel) * {product.panel_bytes}L;")
            with writer.block(f"for (long group = 0; group < {product.groups.groups}; group++)"):
                for at in range(PAIR):
                    self._declare_gate(product, at)
                with writer.block(f"for (long column = 0; column < {panel}; column += {lanes})"):
                    place = f"(group * {panel} + column) * {LANE_BYTES}"
                    writer.line(f"const vi pair = tw_groups(plain + {place});")
                    values = "(vf)(pair << 16) * gate0", "(vf)(pair & (int32_t)0xffff0000) * gate1"
                    writer.line(f"tw_store_i((int32_t *)(packed + {place}), {product.held.lane_of(values)});")

    def _declare_gate(self, product: DotContraction, at: int) -> None:
        """Declares `gate{at}`, what element `at` of group `group` is multiplied by; past the last element, by 0."""
        writer, depth = product.writer, product.view.depth
        writer.line(f"float of{at} = 0;")
        place = f"group * {PAIR} + {at}"
        with writer.block(f"if ({place} < {depth})" if depth % PAIR and at else ""):
            writer.line(f"const long k = {place};")
            decode(writer, product.view.k, "k")
            emitter = Emitter(writer, product.slots.address, numerics=product.numerics)
            with emitter.scope():
                writer.line(f"of{at} = {emitter.scalar(self.gate)};")
        writer.line(f"const vf gate{at} = tw_splat(of{at});")


GATED_BF16 = Algorithm(("gated_bf16",), gated_bf16_tiles, gated_bf16, "bf16", any_short)
