"""Products whose B is a constant that keeps groups of neighbours along k for some neighbouring columns together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.devices.cuda.codegen.vector_panels import MOST_GROUPS
from compiler.devices.cuda.products.floats import as_fp32, times_loaded
from compiler.encodings.blocks import WIDTHS, Blocks
from compiler.forms.contraction import Contraction, as_contraction, packing_of
from compiler.forms.integer import IntegerContraction, as_integer
from compiler.forms.kept_groups import is_whole
from compiler.ir.machine import Workload
from compiler.ir.packing import Panels
from compiler.ir.tensor import DType

DENSE_NAMES: Mapping[str, str] = {f"sparse_{name}": name for name in ("mma", "mma_tf32", "mma_3xtf32", "ffma")}
"""By what tiles call a product without zeros: the dense one that multiplies in the same way."""
BYTES = "mma_integer"
"""What multiplies bytes, as `integer` does."""
OF_BYTES = f"sparse_{BYTES}"


@dataclass(frozen=True)
class VectorSparse:
    """A product y[m, n] = sum over k of A B, and in which groups B is kept.

    position, matrix  which input B is, and where it lies in it
    blocks            encodings of B whose lines are columns and whose groups lie along k
    of_bytes          the same product where A and B are bytes: signed ones of B, that are zero where they say 0
    """

    view: Contraction
    position: int
    matrix: Panels
    blocks: tuple[Blocks, ...]
    of_bytes: IntegerContraction | None

    @property
    def ways(self) -> Iterator[tuple[int, int, int]]:
        """Columns of a panel, neighbours of a group, and what is kept so, in 1 / CLASSES of all groups."""
        for one in self.blocks:
            yield from ((width, one.group, fill) for width, fill in zip(WIDTHS, one.fills, strict=True))

    def fill(self, width: int, group: int) -> int:
        """What panels of so many columns keep of groups of a size. Raises KeyError where that is not known."""
        return {(width, group): fill for width, group, fill in self.ways}[width, group]


def as_vector_sparse(workload: Workload) -> VectorSparse | None:
    """The matrix form of a kernel whose weights are so sparse, and read by the product alone; else None."""
    if not any(isinstance(one, Blocks) for each in workload.encodings for one in each):
        return None
    view = as_contraction(workload)
    of_bytes = as_integer(workload) if view is None else None
    if view is not None:
        found = packing_of(replace(view, b=as_fp32(view.b)), workload, 1)
    elif of_bytes is not None and of_bytes.b.value.dtype is DType.I8 and of_bytes.b.fixed_zero == 0:
        view, found = of_bytes.view, of_bytes.packing(workload, 1)
    else:
        return None
    if found is None:
        return None
    position, matrix = found
    slot = workload.kernel.inputs[position]
    if times_loaded(view, slot.name) > 1:
        return None
    known = (one for one in workload.encodings[position] if isinstance(one, Blocks))
    blocks = tuple(one for one in known if _keeps(one, matrix, slot.type.dims, view.k[-1].extent))
    return VectorSparse(view, position, matrix, blocks, of_bytes) if blocks else None


def _keeps(one: Blocks, matrix: Panels, dims: tuple[int, ...], innermost: int) -> bool:
    """Whether the groups of an encoding lie along k of a matrix, as many as numbers of 16 bits count."""
    whole = is_whole(matrix, one, dims) and innermost % one.group == 0
    return whole and matrix.depth // one.group <= MOST_GROUPS
