"""What operators are lowered with: the file that is written, and the forms that several of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.accelerate.tflite.flatbuffer import SAME, Program, Step, Tensor
from compiler.accelerate.tflite.kernels import ends
from compiler.accelerate.tflite.rounding import HIGH, LOW, quantised
from compiler.accelerate.tosa.execute import DOUBLE_ROUND, DTYPES, PROPAGATE, SINGLE_ROUND
from compiler.accelerate.tosa.paddings import folded_paddings
from compiler.accelerate.tosa.write import TosaWriter

INT32 = DTYPES["int32"]
"""As attributes name the type of sums."""
WHOLE = quantised(1.0)
"""The multiplier and shift that change nothing."""


class NoForm(Exception):
    """Why an operator has no form in TOSA."""


class Lowering:
    """What operators are lowered with: the file that is written, and what it calls tensors of the program.

    Paddings that windows state themselves are `folded`: by the number of the padded tensor, that of the one before it
    and how much lies above, below, left and right of it.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.writer = program, TosaWriter()
        self.names: dict[int, str] = {}
        self.folded = folded_paddings(program)

    def operand(self, step: Step, at: int) -> tuple[str, Tensor]:
        """An operand's name in the file, and what it is."""
        return self.named(step.inputs[at]), self.program.tensors[step.inputs[at]]

    def named(self, number: int) -> str:
        """A tensor's name in the file."""
        if number not in self.names:
            data = self.program.tensors[number].data
            assert data is not None
            self.names[number] = self.writer.constant(data)
        return self.names[number]

    def data(self, step: Step, at: int) -> np.ndarray:
        """The elements of an operand that is a constant. Raises NoForm for another one."""
        found = self.program.tensors[step.inputs[at]].data
        if found is None:
            raise NoForm("TOSA takes this operand as a constant alone")
        return found

    def number(self, value: int, dtype: str = "int8") -> str:
        """A constant of one element."""
        return self.writer.constant(np.array([value], dtype))

    def shape(self, values: Sequence[int]) -> str:
        """A constant shape."""
        return self.writer.constant(np.array(values, np.int64))

    def rescaled(
        self,
        x: str,
        zero: int,
        real: tuple[Any, Any],
        out: Tensor | int,
        name: str,
        shape: Sequence[int],
        *,
        double: bool = True,
        dtype: str = "int8",
    ) -> str:
        """x less its zero point, times (multiplier, shift) of `rounding.quantised`, plus a zero point, in a type."""
        multiplier, exponent = (np.atleast_1d(one) for one in real)
        shift = 31 - exponent
        if shift.min() < 2 or shift.max() > 62:
            raise NoForm("TOSA scales by 2^-31 to 2^29, and its scales are further apart")
        of = self.writer.tensors[x].dtype
        inputs = [
            x,
            self.writer.constant(multiplier.astype(np.int32)),
            self.writer.constant(shift.astype(np.int8)),
            self.number(zero, of),
            self.number(out if isinstance(out, int) else out.zero, dtype),
        ]
        return self.writer.operator(
            "RESCALE",
            inputs,
            name,
            shape,
            dtype,
            scale32=True,
            rounding_mode=DOUBLE_ROUND if double else SINGLE_ROUND,
            per_channel=multiplier.size > 1,
            input_unsigned=False,
            output_unsigned=False,
        )

    def wide(self, x: str, one: Tensor, name: str) -> str:
        """Steps above the zero point, in int32."""
        return self.rescaled(x, one.zero, WHOLE, 0, name, self.writer.tensors[x].shape, double=False, dtype="int32")

    def clamped(self, x: str, step: Step, out: Tensor) -> str:
        """Between the ends that a fused activation leaves of the bytes."""
        low, high = ends(step.options, out)
        return x if (low, high) == (LOW, HIGH) else self.clamp(x, low, high, out.name)

    def clamp(self, x: str, low: int, high: int, name: str) -> str:
        """Bytes between two ends."""
        values = {"min_val": bytes([low % 256]), "max_val": bytes([high % 256]), "nan_mode": PROPAGATE}
        return self.writer.operator("CLAMP", [x], name, self.writer.tensors[x].shape, "int8", **values)

    def finished(self, sums: str, real: tuple[Any, Any], step: Step, out: Tensor, *, double: bool = True) -> str:
        """Sums in int32 as the bytes of a result, with its activation."""
        shape = self.writer.tensors[sums].shape
        return self.clamped(self.rescaled(sums, 0, real, out, out.name, shape, double=double), step, out)

    def reshaped(self, x: str, shape: Sequence[int], name: str) -> str:
        """In another shape, if it has not that."""
        has = self.writer.tensors[x]
        if has.shape == tuple(shape):
            return x
        return self.writer.operator("RESHAPE", [x, self.shape(shape)], name, shape, has.dtype)

    def ranked(self, x: str, rank: int) -> str:
        """With as many axes, new ones before the others."""
        shape = self.writer.tensors[x].shape
        return self.reshaped(x, (1,) * (rank - len(shape)) + shape, f"{x}.ranked")

    def sliced(self, x: str, starts: Sequence[int], sizes: Sequence[int], name: str) -> str:
        """A part of it, if it is not the whole."""
        has = self.writer.tensors[x]
        if has.shape == tuple(sizes):
            return x
        return self.writer.operator("SLICE", [x, self.shape(starts), self.shape(sizes)], name, sizes, has.dtype)

    def elementwise(self, kind: str, a: str, b: str, name: str, *more: str, **attributes: Any) -> str:
        """Of two operands of one rank, in int32."""
        shape = np.broadcast_shapes(*(self.writer.tensors[one].shape for one in (a, b)))
        return self.writer.operator(kind, [a, b, *more], name, shape, "int32", **attributes)

    def whole(self, value: int, rank: int) -> str:
        """A number in int32 with so many axes."""
        return self.writer.constant(np.full((1,) * rank, value, np.int32))

    def table(self, x: str, entries: np.ndarray, name: str) -> str:
        """Bytes by 256 entries, or 16 bits by 513, between which 7 bits are interpolated in int32."""
        shape, of = self.writer.tensors[x].shape, self.writer.tensors[x].dtype
        dtype = "int8" if of == "int8" else "int32"
        return self.writer.operator("TABLE", [x, self.writer.constant(entries.astype(of))], name, shape, dtype)

    def convolved(
        self,
        kind: str,
        x: str,
        zero: int,
        weights: np.ndarray,
        bias: np.ndarray,
        name: str,
        shape: Sequence[int],
        *,
        pad: Sequence[int] = (0, 0, 0, 0),
        stride: Sequence[int] = (1, 1),
        dilation: Sequence[int] = (1, 1),
    ) -> str:
        """Sums in int32 of a CONV2D or DEPTHWISE_CONV2D whose operand has this zero point."""
        inputs = [x, self.writer.constant(weights), self.writer.constant(bias), self.number(zero), self.number(0)]
        window = {"pad": pad, "stride": stride, "dilation": dilation}
        return self.writer.operator(
            kind, inputs, f"{name}.sums", shape, "int32", **window, local_bound=False, acc_type=INT32
        )

    def windowed(self, step: Step, kernel: Sequence[int], out: Tensor) -> tuple[str, dict[str, Any]]:
        """The first operand without what no window reaches, and pad, stride and dilation as TOSA states them."""
        number, around = self.folded.get(step.inputs[0], (step.inputs[0], (0, 0, 0, 0)))
        x, options = self.named(number), step.options
        strides = options["stride_h"], options["stride_w"]
        dilations = options.get("dilation_h", 1), options.get("dilation_w", 1)
        pads, used = [], [*self.writer.tensors[x].shape]
        for at, (size, by, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
            reached = (out.shape[1 + at] - 1) * by + (size - 1) * dilation + 1
            before = around[2 * at]
            if options["padding"] == SAME:
                before += max(reached - used[1 + at] - sum(around[2 * at : 2 * at + 2]), 0) // 2
            after = reached - used[1 + at] - before
            pads += [before, max(after, 0)]
            used[1 + at] += min(after, 0)
        name = self.sliced(x, [0] * 4, used, f"{out.name}.reached")
        return name, {"pad": pads, "stride": strides, "dilation": dilations}
