"""Products whose fragments of A come from an image in shared memory, those of B from rows as those of any product.

A register of a fragment of A holds neighbours of a row of the image: the lane's pixel fixes where its windows begin,
the quad how far from there. All is known when the kernel is written, so that a load has its distance in the
instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.writer import Writer
from compiler.devices.cuda.algorithms.image.geometry import QUAD
from compiler.devices.cuda.algorithms.image.staging import WORD, Extents
from compiler.devices.cuda.codegen.fragments import (
    INSTRUCTIONS,
    MMA_BYTES,
    MMA_M,
    MmaProduct,
    load_b_fragments,
    multiply_fragments,
    row_pitch,
    unrolled,
)

WHOLE = "0xffffffffu"
"""The mask of a register all of whose elements are taps."""
HALVES = 2
"""Of a step, along k: registers 0 and 1 of a fragment of A, and 2 and 3."""


@dataclass(frozen=True)
class ImageProduct(MmaProduct):
    """`MmaProduct` with A from an image. C in its text: `image`, the image in shared memory."""

    extents: Extents

    @property
    def steps(self) -> int:
        """Steps of the tensor cores along all of k."""
        return self.extents.window.depth * self.element.bytes // MMA_BYTES

    def declare(self, writer: Writer, depth: int) -> None:
        """Sums of 0, the place of the thread's warp, and where in the image the lane's pixels begin."""
        extents, across = self.extents, self.n // self.warp_n
        pitch = row_pitch(depth, self.element)
        writer.line(f"const int warp_m = warp / {across} * {self.warp_m}, warp_n = warp % {across} * {self.warp_n};")
        writer.line(f"const int b_lane = (warp_n + lane / 16 * 8 + lane % 8) * {pitch} + lane / 8 % 2 * 16;")
        count = self.warp_m // (MMA_M // 2)
        writer.line(f"int pixel_at[{count}];")
        with unrolled(writer, count, "i"):
            writer.line(f"const int pixel = warp_m + i * {MMA_M // 2} + lane / 4;")
            down, right = f"pixel / {extents.columns}", f"pixel % {extents.columns}"
            place = f"{down} * {extents.strides[0] * extents.pitch}"
            place += f" + {right} * {extents.strides[1] * self.element.bytes}"
            if extents.is_twofold:
                moved = extents.copy_bytes - self.element.bytes
                place += f" + {right} * {extents.strides[1]} % {extents.together} * {moved}"
            writer.line(f"pixel_at[i] = {place} + lane % {QUAD // extents.together} * {WORD};")
        for taps, mask in self._masks.items():
            writer.line(f"const unsigned {mask} = {self._mask_of(taps)};")
        writer.line(f"float acc{''.join(f'[{extent}]' for extent in self.sums)} = {{}};")

    @property
    def _masks(self) -> dict[int, str]:
        """Of quads with fewer taps, the variables whose bits are set where a lane's register has taps."""
        window = self.extents.window
        return {taps: f"first_{taps}" for taps in sorted({window.taps(at) for at in range(window.quads)} - {QUAD})}

    def _mask_of(self, taps: int) -> str:
        together = self.extents.together
        if together == 1:
            return f"lane % {QUAD} < {taps} ? {WHOLE} : 0"
        whole, rest = divmod(taps, together)
        texts = [WHOLE] * whole + ["0xffffu"] * rest + ["0"] * (QUAD // together - whole - rest)
        return f"lane % 2 == 0 ? {texts[0]} : {texts[1]}"

    def _of_lane(self, texts: list[str]) -> str:
        """What differs between the quads of half a step: of 16 bits the lanes of a row have two quads."""
        return texts[0] if len(set(texts)) == 1 else f"(lane % 4 < 2 ? {texts[0]} : {texts[1]})"

    def multiply_steps(self, writer: Writer, first: int, past: int) -> None:
        """acc += the products of these steps, with `image` and the rows of B at `b_tile`."""
        pitch = row_pitch(self.extents.window.depth, self.element)
        rows, columns, _ = self.sums
        for step in range(first, past):
            with writer.block(""):
                self._load_a(writer, step, rows)
                load_b_fragments(writer, "b", columns, f"b_tile + b_lane + {step * MMA_BYTES}", pitch)
                multiply_fragments(writer, INSTRUCTIONS[self.element], "acc", "a", "b", rows, columns)

    def _load_a(self, writer: Writer, step: int, rows: int) -> None:
        """unsigned a[rows][4] = the fragments of A of a step, without what is no tap."""
        window, each = self.extents.window, self.extents.window.whole // HALVES
        halves = []
        for half in range(HALVES):
            quads = [(step * HALVES + half) * each + at for at in range(each)]
            masks = {0: "0", QUAD: WHOLE, **self._masks}
            first, *others = (self.extents.offset(quad) for quad in quads)
            at = f"{first}{''.join(f' + (lane % 4 < 2 ? 0 : {other - first})' for other in others)}"
            halves.append((at, self._of_lane([masks[window.taps(quad)] for quad in quads])))
        writer.line(f"unsigned a[{rows}][4];")
        with unrolled(writer, rows, "i"), unrolled(writer, HALVES, "part"):
            for half, (at, mask) in enumerate(halves):
                load = f"*(const unsigned *)(image + pixel_at[2 * i + part] + {at})"
                value = {WHOLE: load, "0": "0"}.get(mask, f"{load} & {mask}")
                writer.line(f"a[i][{f'{2 * half} + ' if half else ''}part] = {value};")
