"""The table of upgrades: per operator, up to which opset its old form reaches.

A rule beside it brings that form to the newest.

A rule sees one call (its attributes, the types of its inputs, the inputs that are constant) and returns an Expansion
over the newest forms, or None where the old form already means the same. Inputs are named x0, x1, ... by position,
outputs y0. Operators that only gained element types or defaulted attributes since opset 7 have no entry. Source: the
changelog of ONNX operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler.frontend.expansions.composed import (
    batch_norm_of_batch,
    deform_conv,
    det,
    max_roi_pool,
    max_unpool,
    roi_align,
)
from compiler.frontend.expansions.site import Site
from compiler.frontend.expansions.spectra import dft, stft
from compiler.frontend.opsets.six import OPSET_SIX
from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.frontend.reading.tensors import CODES
from compiler.ir.tensor import DType, extent, static
from compiler.ops.operator import Unsupported

ALWAYS = 10**6
"""An opset that no model has: the rule applies to every form."""


Rule = Callable[[Site], Expansion | None]


def attributes_to_inputs(*moved: tuple[str, DType | None]) -> Rule:
    """Attributes that became inputs after the first one, in order; dtype None: that of the first input."""

    def rule(site: Site) -> Expansion | None:
        names = [name for name, _ in moved]
        inputs = ["x0"]
        constants: dict[str, np.ndarray] = {}
        for name, dtype in moved:
            value = site.call.attrs.get(name)
            if value is None or value == ():
                inputs.append("")
                continue
            target = (dtype or site.first.dtype).numpy
            with np.errstate(over="ignore"):
                constants[name] = np.asarray(value, dtype=np.float64 if target.kind not in "iu" else np.int64).astype(
                    target
                )
            inputs.append(name)
        call = Call(site.call.op, tuple(inputs), site.results, site.attrs_without(*names))
        return site.becomes(call, **constants)

    return rule


def top_k(site: Site) -> Expansion:
    """`k` was an attribute before opset 10, and largest and sorted were what they are by default."""
    k = np.array([site.integer("k", 1)], np.int64)
    return site.becomes(Call("TopK", ("x0", "k"), site.results, site.attrs_without("k")), k=k)


def cast_like(site: Site) -> Expansion:
    """castlike(x, y) = cast(x, to = element type of y)."""
    target = site.types[1]
    if target is None:
        raise Unsupported("its second input is absent", "export the model again")
    return site.becomes(Call("Cast", ("x0",), ("y0",), {**site.call.attrs, "to": CODES[target.dtype]}))


def softmax_over_flattened(site: Site) -> Expansion:
    """softmax(x, axis=a) = reshape(softmax(flatten(x, axis=a), axis=1), shape(x)) before opset 13.

    `axis` was 1 by default. Where only one dimension from `axis` on is longer than 1, the newest form over that axis
    means the same.
    """
    dims = site.first.shape
    axis = site.integer("axis", 1)
    if not -len(dims) <= axis <= len(dims):
        raise Unsupported(f"axis {axis} is outside a tensor of rank {len(dims)}", "export the model again")
    axis = axis + len(dims) if axis < 0 else axis
    op = site.call.op
    longer = [position for position in range(axis, len(dims)) if dims[position] != 1]
    if axis < len(dims) and len(longer) <= 1:
        return site.becomes(Call(op, ("x0",), ("y0",), {"axis": longer[0] if longer else axis}))
    return site.becomes(
        Call("Flatten", ("x0",), ("flat",), {"axis": axis}),
        Call(op, ("flat",), ("soft",), {"axis": 1}),
        Call("Reshape", ("soft", "shape"), ("y0",), {"allowzero": 1}),
        shape=np.array(static(dims), np.int64),
    )


def batch_norm_for_inference(site: Site) -> Expansion | None:
    """Outputs beside the first and `spatial` = 0 belong to training, compiled only where `training_mode` says so."""
    if site.integer("training_mode", 0):
        return batch_norm_of_batch(site)
    if any(site.call.outputs[1:]) or not site.integer("spatial", 1):
        raise Unsupported(
            "it is in training form (statistics per batch or as outputs)",
            "export the model in inference mode (model.eval() before torch.onnx.export)",
        )
    if "spatial" not in site.call.attrs and len(site.call.outputs) == 1:
        return None
    return site.becomes(Call("BatchNormalization", site.names, ("y0",), site.attrs_without("spatial")))


def upsample_to_resize(site: Site) -> Expansion:
    """upsample(x, scales) = resize(x, scales), asymmetric; nearest takes the floor."""
    mode = site.call.attrs.get("mode", "nearest")
    attrs: dict[str, AttrValue] = {
        "mode": "linear" if mode == "bilinear" else mode,
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    if "scales" in site.call.attrs:
        scales = np.asarray(site.call.attrs["scales"], np.float32)
        return site.becomes(Call("Resize", ("x0", "", "scales"), ("y0",), attrs), scales=scales)
    return site.becomes(Call("Resize", ("x0", "", "x1"), ("y0",), attrs))


def first_resize(site: Site) -> Expansion:
    """Opset 10: asymmetric; nearest takes the floor when enlarging and the ceiling when shrinking."""
    scales = site.constants[1]
    shrinks = scales is not None and bool((scales < 1).any())
    attrs: dict[str, AttrValue] = {
        **site.call.attrs,
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "ceil" if shrinks else "floor",
    }
    return site.becomes(Call("Resize", ("x0", "", "x1"), ("y0",), attrs))


def resize_without_empty_inputs(site: Site) -> Expansion | None:
    """An empty `roi`, `scales` or `sizes` is an absent one; scales are absent where sizes are there."""
    empty = [found is not None and 0 in found.shape for found in site.types]
    if not any(empty):
        return None
    names = tuple("" if gone else name for name, gone in zip(site.names, empty, strict=True))
    return site.becomes(Call("Resize", names, ("y0",), site.call.attrs))


def equal_split(site: Site) -> Expansion | None:
    """Before opset 18 a Split without sizes made as many parts as it has outputs."""
    given = site.ints("split")
    attrs = site.attrs_without("split")
    if given:
        return site.becomes(Call("Split", ("x0", "split"), site.results, attrs), split=np.array(given, np.int64))
    if len(site.call.inputs) > 1 and site.call.inputs[1]:
        return None
    axis = site.integer("axis", 0)
    parts = len(site.call.outputs)
    dims = site.first.shape
    if not -len(dims) <= axis < len(dims) or extent(dims[axis]) % parts:
        raise Unsupported(f"axis {axis} of {site.first} does not split into {parts} equal parts", "give the sizes")
    return site.becomes(Call("Split", ("x0",), site.results, {**attrs, "num_outputs": parts}))


def default_attributes(**values: AttrValue) -> Rule:
    """Attributes that came later, with a default that is not what the old form did."""

    def rule(site: Site) -> Expansion:
        return site.becomes(Call(site.call.op, site.names, site.results, {**values, **site.call.attrs}))

    return rule


def renamed_mode(site: Site) -> Expansion | None:
    """GridSample before opset 20 said bilinear and bicubic for linear and cubic."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(str(site.call.attrs.get("mode", "bilinear")))
    if mode is None:
        return None
    return site.becomes(Call("GridSample", site.names, ("y0",), {**site.call.attrs, "mode": mode}))


def scatter_elements(site: Site) -> Expansion:
    """Scatter = ScatterElements."""
    return site.becomes(Call("ScatterElements", site.names, ("y0",), site.call.attrs))


def per_channel_group_norm(site: Site) -> Expansion:
    """Opset 18 had one scale and bias per group: each is repeated for the channels of its group."""
    groups = site.integer("num_groups", 1)
    channels = extent(site.first.shape[1]) if site.first.rank > 1 else 0
    if site.first.rank < 2 or groups < 1 or channels % groups:
        raise Unsupported(f"{site.first} does not split into {groups} groups", "export the model again")
    shapes = {
        "column": np.array([groups, 1], np.int64),
        "grid": np.array([groups, channels // groups], np.int64),
        "flat": np.array([channels], np.int64),
    }
    calls: list[Call] = []
    for name in ("x1", "x2"):
        calls += [
            Call("Reshape", (name, "column"), (f"{name} column",)),
            Call("Expand", (f"{name} column", "grid"), (f"{name} grid",)),
            Call("Reshape", (f"{name} grid", "flat"), (f"{name} flat",)),
        ]
    calls.append(Call("GroupNormalization", ("x0", "x1 flat", "x2 flat"), ("y0",), site.call.attrs))
    return site.becomes(*calls, **shapes)


def dft_axis_to_input(site: Site) -> Expansion:
    """Opset 17 had `axis` as an attribute, 1 by default."""
    axis = np.array(site.integer("axis", 1), np.int64)
    names = (*site.names, "")[:2]
    return site.becomes(Call("DFT", (*names, "axis"), ("y0",), site.attrs_without("axis")), axis=axis)


_AXES = attributes_to_inputs(("axes", DType.I64))
_REDUCTIONS_18 = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSumSquare"),
)

COMPOSED: Mapping[str, Rule] = {
    "DFT": dft,
    "DeformConv": deform_conv,
    "Det": det,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool,
    "STFT": stft,
}
"""Operators whose newest form, too, is made of others."""

UPGRADES: tuple[tuple[str, int, Rule], ...] = (
    # operator, opset in which the newest form came, rule for the forms before it
    *((name, 7, rule) for name, rule in OPSET_SIX),
    ("BatchNormalization", ALWAYS, batch_norm_for_inference),
    ("CastLike", ALWAYS, cast_like),
    ("Clip", 11, attributes_to_inputs(("min", None), ("max", None))),
    ("DFT", 20, dft_axis_to_input),
    ("GridSample", 20, renamed_mode),
    ("GroupNormalization", 21, per_channel_group_norm),
    ("Hardmax", 13, softmax_over_flattened),
    ("LogSoftmax", 13, softmax_over_flattened),
    ("Pad", 11, attributes_to_inputs(("pads", DType.I64), ("value", None))),
    ("ReduceSum", 13, _AXES),
    *((name, 18, _AXES) for name in _REDUCTIONS_18),
    ("Resize", 11, first_resize),
    ("Resize", ALWAYS, resize_without_empty_inputs),
    ("RoiAlign", 16, default_attributes(coordinate_transformation_mode="output_half_pixel")),
    ("RoiAlign", ALWAYS, roi_align),
    ("Scatter", ALWAYS, scatter_elements),
    ("Slice", 10, attributes_to_inputs(("starts", DType.I64), ("ends", DType.I64), ("axes", DType.I64))),
    ("Softmax", 13, softmax_over_flattened),
    ("Split", 18, equal_split),
    ("Squeeze", 13, _AXES),
    ("TopK", 10, top_k),
    ("Unsqueeze", 13, _AXES),
    ("Upsample", ALWAYS, upsample_to_resize),
    *((name, ALWAYS, rule) for name, rule in COMPOSED.items()),
)
