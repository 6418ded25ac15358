"""How large a model may be: one place for every number that the front end refuses by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that hold while a model is read; what passes them is refused as `ModelTooLarge` or left uncomputed.

    file_bytes          of the model file without its external data: protobuf's own limit
    fields              protobuf fields and messages in the file, tensor bytes and lists of numbers not counted
    numbers             entries of lists of numbers that are written one by one, up to 16 bytes of memory each
    depth               of protobuf messages inside one another; a subgraph takes three levels
    nodes               in the file, and after every function is expanded and every branch chosen
    reads               names that these nodes read, and constants of their bodies as often as one is entered
    function_depth      of functions calling one another
    expansion_depth     of functions, composed operators and branches inside one another while they are expanded
    tensor_bytes        of any one tensor: input, constant or intermediate
    fold_bytes          of the largest tensor that constant propagation reads or computes
    fold_total          elements that constant propagation computes over the whole model
    fold_products       of the element counts that one constant contraction multiplies
    parameter_elements  of a tensor that becomes an attribute (a Reshape's shape, a Slice's bounds)
    refusals            reported in full; the rest is counted
    """

    file_bytes: int = 2**31 - 1
    fields: int = 1_500_000
    numbers: int = 20_000_000
    depth: int = 96
    nodes: int = 100_000
    reads: int = 2_000_000
    function_depth: int = 32
    expansion_depth: int = 64
    tensor_bytes: int = 2**33
    fold_bytes: int = 2**27
    fold_total: int = 2**29
    fold_products: int = 2**28
    parameter_elements: int = 2**12
    refusals: int = 50
