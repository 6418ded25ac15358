"""Legal tiles of products by warpgroups (`compiler.devices.cuda.products.wgmma`).

They are large block tiles of large products.
"""

from __future__ import annotations

from compiler.devices.cuda.products.operand import half_of
from compiler.devices.cuda.products.tiles import MOST_OFFSET, shape_of
from compiler.devices.cuda.products.warpgroups import cheapest_by_warpgroups, has_warpgroups, is_copied_whole
from compiler.devices.cuda.target import CudaTarget
from compiler.forms.contraction import Contraction, as_contraction
from compiler.ir.machine import Workload
from compiler.tuning.proposal import Proposal


def cuda_wgmma_tiles(workload: Workload, target: CudaTarget, precision: str) -> list[Proposal]:
    """The most promising tiles by the model, best first; none where the target or the operands do not allow them."""
    view = as_contraction(workload)
    buffers = (*workload.inputs, *workload.outputs)
    if view is None or not has_warpgroups(target) or any(buffer.span >= MOST_OFFSET for buffer in buffers):
        return []
    half = half_of(view, workload, exact=precision in ("fp32", "tf32"))
    if half is None or not view.batches * view.rows * view.columns:
        return []
    shape = shape_of(view, workload, half)
    if not is_copied_whole(shape) or shape.b is not None or _is_read_again(view):
        return []
    return [*cheapest_by_warpgroups("wgmma", shape, target)]


def _is_read_again(view: Contraction) -> bool:
    """Whether what B is loaded from is loaded elsewhere too: then it cannot be packed."""
    values = [value for block in (view.product, *view.epilogue) for value in block.values]
    slots = {load.slot for load in view.b.loads}
    return len({load for value in values for load in value.loads if load.slot in slots}) > 1
