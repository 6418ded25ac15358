"""What the double takes from the PTX ISA manual and only a GPU can confirm.

Fragments, swizzles, descriptors, conversions, launches.

Operands of products are small integers, exact in every dtype, so that sums are the same in any order and every bit is
decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import ml_dtypes
import numpy as np

from tests.cuda_double.demonstration import DEMONSTRATIONS, KERNELS, Demonstration
from tests.cuda_double.double import Device, TensorMap
from tests.cuda_double.layouts import (
    BOXES,
    SWIZZLE_CODES,
    G,
    T,
    fragments,
    k_major,
    mn_major,
    sparse_byte_fragments,
    sparse_byte_rows,
    sparse_fragments,
    sparse_rows,
    swizzle,
)
from tests.cuda_double.warpgroups import multiplied, sparsely_multiplied
from tests.gpu.family import Family, Outcome, Trial

SOURCE = (KERNELS / "intrinsics.cu").read_text()
NAMES = (
    *re.findall(r"__global__ void (?!name\b)(?!__)(\w+)\(", SOURCE),
    *re.findall(
        r"^(?:LDMATRIX|MMA|MMA_SP|TENSOR_LOAD|WGMMA|BYTE_WGMMA|WGMMA_SP|BYTE_WGMMA_SP)\((\w+)", SOURCE, re.MULTILINE
    ),
)
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8}


def integers(shape: tuple[int, ...], seed: int, dtype: type = np.float32) -> np.ndarray:
    """Whole numbers from -8 to 8 without 0."""
    random = np.random.default_rng(seed)
    signed: np.ndarray = random.integers(1, 9, shape) * random.choice([-1, 1], shape)
    return signed.astype(dtype)


def operand(shape: tuple[int, ...], seed: int, dtype: type) -> np.ndarray:
    """Whole numbers; unsigned bytes of every size, of which some are negative as signed ones."""
    if dtype is not np.uint8:
        return integers(shape, seed, dtype)
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def conversions(device: Device) -> list[Outcome]:
    """All 16-bit patterns to float, and floats of every size back."""
    halves = np.arange(65536, dtype=np.uint16)
    bits = np.random.default_rng(1).integers(0, 1 << 32, 65536, dtype=np.uint32)
    x = np.where(np.isnan(bits.view(np.float32)), np.float32(1), bits.view(np.float32)).astype(np.float32)
    dtypes = (np.float32, np.float32, np.uint16, np.uint16, np.uint32, np.int32)
    out = [device.allocate(65536 * np.dtype(dtype).itemsize) for dtype in dtypes]
    device.launch("convert", [256], [256], [device.upload(x), device.upload(halves), *out, 65536])
    found = [device.download(buffer, (65536,), dtype) for buffer, dtype in zip(out, dtypes, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        expected: tuple[np.ndarray, ...] = (
            halves.view(np.float16).astype(np.float32),
            (halves.astype(np.uint32) << 16).view(np.float32),
            x.astype(np.float16).view(np.uint16),
            x.astype(ml_dtypes.bfloat16).view(np.uint16),
            (x.view(np.uint32) + 0x1000) & 0xFFFFE000,  # ties away from zero
            np.clip(np.rint(x), -128, 127).astype(np.int32),
        )
    quiet = [np.where(np.isnan(array), np.float32(0), array) for array in (found[0], expected[0])]
    finite = np.abs(x) < 1e38
    return [
        Outcome(quiet[0], quiet[1]),
        *(Outcome(got, want) for got, want in zip(found[1:4], expected[1:4], strict=True)),
        Outcome(found[4][finite], expected[4][finite]),
        Outcome(found[5], expected[5]),
    ]


def approximations(device: Device) -> list[Outcome]:
    x = np.linspace(-20, 20, 64, dtype=np.float32)
    exp2, tanh = device.allocate(256), device.allocate(256)
    device.launch("approximations", [1], [64], [device.upload(x), exp2, tanh])
    return [
        Outcome(device.download(exp2, (64,), np.float32), np.exp2(x.astype(np.float64)), 2.0**-22),
        Outcome(device.download(tanh, (64,), np.float32), np.tanh(x.astype(np.float64)), 2.0**-10.9),
    ]


def copies(device: Device, count: int) -> list[Outcome]:
    """cp.async of 16, 8 and 4 bytes, of which `count` are read."""
    x = np.random.default_rng(5).integers(1, 127, 512).astype(np.int8)
    out = device.allocate(2048)
    device.launch("copies", [1], [32], [device.upload(x), out, count], shared=2048)
    found = device.download(out, (2048,), np.int8)
    outcomes = []
    for start, size in ((0, 16), (512, 8), (1024, 4)):
        expected = x[: 32 * size].reshape(32, size).copy()
        expected[:, min(count, size) :] = 0
        outcomes.append(Outcome(found[start : start + 32 * size].reshape(32, size), expected))
    return outcomes


def copies_by_mbarrier(device: Device, rounds: int = 5) -> list[Outcome]:
    x = integers((rounds, 32), 6)
    out = device.allocate(x.nbytes)
    device.launch("copies_by_mbarrier", [1], [64], [device.upload(x), out, rounds], shared=256)
    return [Outcome(device.download(out, x.shape, np.float32), x[:, ::-1] + np.float32(1))]


def named_barriers(device: Device, rounds: int = 5) -> list[Outcome]:
    x = integers((rounds, 32), 7)
    out = device.allocate(2 * x.nbytes)
    device.launch("named_barriers", [1], [128], [device.upload(x), out, rounds])
    return [Outcome(device.download(out, (2, rounds, 32), np.float32), np.stack([x[:, ::-1]] * 2))]


def ldmatrix(device: Device, matrices: int, transposed: bool) -> list[Outcome]:
    pitch = 24
    x = np.arange(8 * matrices * pitch, dtype=np.uint16).reshape(8 * matrices, pitch)
    out = device.allocate(matrices * 128)
    name = f"ldmatrix_x{matrices}{'_trans' * transposed}"
    device.launch(name, [1], [32], [device.upload(x), out, 8 * matrices, pitch], shared=x.nbytes)
    tiles = x.reshape(matrices, 8, pitch)[:, :, :8]
    tiles = tiles.transpose(0, 2, 1) if transposed else tiles
    pairs = np.stack([tiles[:, G, 2 * T], tiles[:, G, 2 * T + 1]], axis=-1)
    return [Outcome(device.download(out, (matrices, 32, 2), np.uint16), pairs)]


def mma(device: Device, kind: str) -> list[Outcome]:
    """One product of a warp: registers of `a` and `b` as the manual's figures place them, sums likewise."""
    k, (dtype, *others) = int(re.findall(r"k(\d+)", kind)[0]), [DTYPES[name] for name in kind.split("_")[1:]]
    sums_dtype = np.int32 if k == 32 else np.float32
    a, b, d = operand((16, k), 8, dtype), operand((k, 8), 9, (others or [dtype])[0]), integers((16, 8), 10, sums_dtype)
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    registers_a, registers_b = fragments(a, b, 4 // a.itemsize)
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_{kind}", [1], [32], [device.upload(registers_a), device.upload(registers_b), sums])
    expected = d + (a.astype(np.float64) @ b.astype(np.float64)).astype(sums_dtype)
    return [Outcome(device.download(sums, (4, 32), sums_dtype), expected[rows, columns].T)]


def sparse_mma(device: Device, kind: str, selector: int) -> list[Outcome]:
    """The same of a product by rows of which two of each four neighbours are not zero."""
    kept = np.argsort(np.random.default_rng(11).random((16, 8, 4)), axis=-1).reshape(16, 32) < 2
    a, b = integers((16, 32), 12, DTYPES[kind]) * kept, integers((32, 8), 13, DTYPES[kind])
    d = integers((16, 8), 14)
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    operands = [device.upload(registers) for registers in sparse_fragments(a.astype(DTYPES[kind]), b, selector)]
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_sp_{kind}_{selector}", [1], [32], [*operands, sums])
    expected = d + (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    return [Outcome(device.download(sums, (4, 32), np.float32), expected[rows, columns].T)]


def sparse_byte_mma(device: Device, kind: str) -> list[Outcome]:
    """The same of signed bytes, by bytes of the dtype that `kind` names last."""
    kept = np.argsort(np.random.default_rng(17).random((16, 16, 4)), axis=-1).reshape(16, 64) < 2
    a, d = (integers((16, 64), 18) * kept).astype(np.int8), integers((16, 8), 19, np.int32)
    b = np.abs(integers((64, 8), 20)).astype(np.uint8) if kind.endswith("u8") else integers((64, 8), 20, np.int8)
    b[:, 3:] += 127 if kind.endswith("u8") else 0  # of which some are negative as signed ones
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    operands = [device.upload(registers) for registers in sparse_byte_fragments(a, b)]
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_sp_{kind}_0", [1], [32], [*operands, sums])
    expected = d + a.astype(np.int32) @ b.astype(np.int32)
    return [Outcome(device.download(sums, (4, 32), np.int32), expected[rows, columns].T)]


def bulk_copy(device: Device) -> list[Outcome]:
    x = np.random.default_rng(11).integers(-128, 128, 400).astype(np.int8)
    out = device.allocate(400)
    device.launch("bulk", [1], [64], [device.upload(x), out, 400], shared=1024)
    return [Outcome(device.download(out, (400,), np.int8), x)]


def tensor_copy(
    device: Device, dtype: str, sizes: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...], width: int
) -> list[Outcome]:
    """A box of a tensor in shared memory: where each 16 bytes lie, and zeros beyond the tensor."""
    x = np.random.default_rng(12).integers(1, 100, sizes[::-1]).astype(dtype)
    size = int(np.prod(box)) * x.itemsize
    source, out = device.upload(x), device.allocate(size)
    arguments = [TensorMap(source, dtype, sizes, box, width), out, size, *[*at, 0, 0, 0][:5]]
    device.launch(f"tma_load_{len(sizes)}d", [1], [32], arguments, shared=size + 64)
    expected = np.zeros(box[::-1], x.dtype)
    for position in np.ndindex(*expected.shape):
        place = tuple(int(i + first) for i, first in zip(position, at[::-1], strict=True))
        if all(0 <= i < limit for i, limit in zip(place, x.shape, strict=True)):
            expected[position] = x[place]
    found = device.download(out, (size,), np.uint8)
    return [Outcome(found[swizzle(np.arange(size), width)], expected.view(np.uint8).reshape(-1))]


def tensor_store(device: Device) -> list[Outcome]:
    x = np.zeros((6, 24), np.uint16)
    target = device.upload(x)
    device.launch("tma_store_2d", [1], [32], [TensorMap(target, "float16", (24, 6), (16, 4), 0), 64, 16, 4], shared=128)
    x[4:, 16:] = np.arange(64).reshape(4, 16)[:2, :8]
    return [Outcome(device.download(target, x.shape, np.uint16), x)]


def multicast(device: Device) -> list[Outcome]:
    x = integers((4, 8), 13)
    out = device.allocate(2 * x.nbytes)
    arguments = [TensorMap(device.upload(x), "float32", (8, 4), (8, 4), 0), out, 32]
    device.launch("multicast", [2], [32], arguments, shared=256, cluster=[2])
    return [Outcome(device.download(out, (2, 4, 8), np.float32), np.stack([x, x + np.float32(1)]))]


def ring(device: Device) -> list[Outcome]:
    out = device.allocate(32)
    device.launch("ring", [8], [32], [out], shared=64, cluster=[4])
    return [Outcome(device.download(out, (8,), np.int32), np.array([3, 0, 1, 2] * 2, np.int32))]


def wgmma(device: Device, kernel: str, width: int) -> list[Outcome]:
    """One product of a warpgroup on operands in shared memory, behind descriptors with every swizzle."""
    _, kind, *mn, columns = kernel.split("_")
    n, k, dtype = int(columns[1:]), (8 if kind == "tf32" else 16), DTYPES[kind]
    a, b, d = integers((64, k), 14, dtype), integers((n, k), 15, dtype), integers((64, n), 16)
    layout = mn_major if mn else k_major
    (bytes_a, leading, stride), (bytes_b, _, _) = layout(a, width), layout(b, width)
    outcomes = []
    for accumulate in (1, 0):
        parameters = [leading, stride, SWIZZLE_CODES[width], accumulate]
        found = multiplied(device, kernel, bytes_a, bytes_b, d, parameters)
        expected = (accumulate * d + a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
        outcomes.append(Outcome(found, expected))
    return outcomes


def byte_wgmma(device: Device, kernel: str, width: int) -> list[Outcome]:
    """The same of bytes, whose sums wrap around."""
    n, random = int(kernel.rpartition("_n")[2]), np.random.default_rng(25)
    a: np.ndarray = random.integers(0, 256, (64, 32)).astype(np.uint8 if "_u8_" in kernel else np.int8)
    b = random.integers(-128, 128, (n, 32)).astype(np.int8)
    d = random.choice([-(2**31), 2**31 - 1, 1000], (64, n)).astype(np.int32)
    (bytes_a, leading, stride), (bytes_b, _, _) = k_major(a, width), k_major(b, width)
    parameters = [leading, stride, SWIZZLE_CODES[width], 1]
    found = multiplied(device, kernel, bytes_a, bytes_b, d, parameters)
    expected = (d + a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    return [Outcome(found, expected)]


def sparse_wgmma(device: Device, kernel: str) -> list[Outcome]:
    """The same of rows of which two of each four neighbours are not zero, with the metadata of each warp."""
    *_, kind, selector, columns = kernel.split("_")
    n, dtype = int(columns[1:]), DTYPES[kind]
    kept = np.argsort(np.random.default_rng(21).random((64, 8, 4)), axis=-1).reshape(64, 32) < 2
    a, b, d = integers((64, 32), 22, dtype) * kept, integers((n, 32), 23, dtype), integers((64, n), 24)
    given, metadata = sparse_rows(a.astype(dtype), int(selector))
    found = sparsely_multiplied(device, kernel, given, b, d, metadata, 1)
    expected = (d + a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
    return [Outcome(found, expected)]


def sparse_byte_wgmma(device: Device, kernel: str) -> list[Outcome]:
    """The same of signed bytes, by bytes of the dtype that `kernel` names last; sums wrap around."""
    n, random = int(kernel.rpartition("_n")[2]), np.random.default_rng(26)
    kept = np.argsort(random.random((64, 16, 4)), axis=-1).reshape(64, 64) < 2
    a: np.ndarray = (random.integers(1, 128, (64, 64)) * random.choice([-1, 1], (64, 64)) * kept).astype(np.int8)
    unsigned = "_u8_" in kernel
    b: np.ndarray = random.integers(-128 + 128 * unsigned, 128 + 128 * unsigned, (n, 64))
    b = b.astype(np.uint8 if unsigned else np.int8)
    d = random.choice([-(2**31), 2**31 - 1, 1000], (64, n)).astype(np.int32)
    given, metadata = sparse_byte_rows(a)
    found = sparsely_multiplied(device, kernel, given, b, d, metadata, 1)
    expected = (d + a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    return [Outcome(found, expected)]


def demonstrated(device: Device, demonstration: Demonstration) -> list[Outcome]:
    computed, expected = demonstration.run(device)
    return [Outcome(computed, expected, demonstration.tolerance)]


def _wgmma_trials() -> list[Trial]:
    found = []
    for kernel in (name for name in NAMES if name.startswith("wgmma")):
        columns, transposed = int(kernel.rpartition("_n")[2]), "_mn_" in kernel
        for width in SWIZZLE_CODES:
            # A line along mn is as wide as the swizzle, which the operand must fill.
            if not transposed or (width and width // 2 <= columns):
                found.append(Trial(f"{kernel} swizzle {width}", partial(wgmma, kernel=kernel, width=width)))
    return found


def _byte_wgmma_trials() -> Iterator[Trial]:
    for kernel in (name for name in NAMES if name.startswith("byte_wgmma")):
        for width in SWIZZLE_CODES:
            yield Trial(f"{kernel} swizzle {width}", partial(byte_wgmma, kernel=kernel, width=width))


def _trials(**runs: Callable[[Device], Sequence[Outcome]]) -> tuple[Trial, ...]:
    return tuple(Trial(name, run) for name, run in runs.items())


def _of_intrinsics(name: str, trials: Sequence[Trial], needs: str = "sm_80") -> Family:
    return Family(name, SOURCE, tuple(trials), NAMES, needs)


def _of_demonstrations(name: str, demonstrations: Sequence[str], needs: str = "sm_80") -> Family:
    chosen = [DEMONSTRATIONS[one] for one in demonstrations]
    (source,) = {demonstration.source for demonstration in chosen}
    trials = [Trial(one, partial(demonstrated, demonstration=DEMONSTRATIONS[one])) for one in demonstrations]
    return Family(name, source, tuple(trials), (), needs)


KINDS = (
    *("m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_tf32"),
    *("m16n8k32_s8", "m16n8k32_u8", "m16n8k32_u8_s8", "m16n8k32_s8_u8"),
)
FAMILIES: tuple[Family, ...] = (
    _of_intrinsics("conversions", _trials(rounding=conversions, approximations=approximations)),
    _of_intrinsics(
        "copies",
        [
            *(Trial(f"cp.async {count} bytes", partial(copies, count=count)) for count in (0, 3, 8, 16)),
            *_trials(mbarrier=copies_by_mbarrier, barriers=named_barriers),
        ],
    ),
    _of_intrinsics(
        "ldmatrix",
        [
            Trial(f"x{matrices}{' trans' * transposed}", partial(ldmatrix, matrices=matrices, transposed=transposed))
            for matrices in (1, 2, 4)
            for transposed in (False, True)
        ],
    ),
    _of_intrinsics("mma", [Trial(kind, partial(mma, kind=kind)) for kind in KINDS]),
    _of_intrinsics(
        "mma.sp",
        [
            *(
                Trial(f"{kind} selector {selector}", partial(sparse_mma, kind=kind, selector=selector))
                for kind in ("f16", "bf16")
                for selector in (0, 1)
            ),
            *(Trial(kind, partial(sparse_byte_mma, kind=kind)) for kind in ("s8", "s8_u8")),
        ],
    ),
    _of_intrinsics(
        "tensor copies",
        [
            *_trials(bulk=bulk_copy, store=tensor_store),
            *(
                Trial(
                    f"{dtype} {box} of {sizes} swizzle {width}",
                    partial(tensor_copy, dtype=dtype, sizes=sizes, box=box, at=at, width=width),
                )
                for dtype, sizes, box, at, width in BOXES
            ),
        ],
        "sm_90",
    ),
    _of_intrinsics("clusters", _trials(multicast=multicast, ring=ring), "sm_90"),
    _of_intrinsics("wgmma", _wgmma_trials(), "sm_90a"),
    _of_intrinsics("wgmma of bytes", [*_byte_wgmma_trials()], "sm_90a"),
    _of_intrinsics(
        "wgmma.sp",
        [
            *(Trial(name, partial(sparse_wgmma, kernel=name)) for name in NAMES if name.startswith("sparse_wgmma")),
            *(
                Trial(name, partial(sparse_byte_wgmma, kernel=name))
                for name in NAMES
                if name.startswith("bytes_sparse")
            ),
        ],
        "sm_90a",
    ),
    _of_demonstrations("reduction by the last block", ["reduce_sum"]),
    _of_demonstrations("softmax of rows", ["softmax_row"]),
    _of_demonstrations("convolution by mma", ["conv3x3"]),
    _of_demonstrations("graph of dependent launches", ["dense_chain", "dense_chain_full_edges"], "sm_90"),
    _of_demonstrations("persistent kernel with events", ["two_layers"]),
    _of_demonstrations("sum over a cluster", ["cluster_sum"], "sm_90"),
    _of_demonstrations("matrix product by wgmma", ["gemm_sm90"], "sm_90a"),
)
