from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InputsError, UnsupportedModel
from compiler.measure import npz
from compiler.measure.npz import SMALL, read_fitting, read_inputs, write_outputs


@dataclass(frozen=True)
class Sizes:
    name: str
    low: int
    high: int
    step: int = 1


@dataclass(frozen=True)
class Port:
    name: str
    dtype: str
    shape: tuple[int, ...]
    open: dict[int, Sizes] = field(default_factory=dict)

    @property
    def axes(self) -> list[Sizes | None]:
        return [self.open.get(axis) for axis in range(len(self.shape))]

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype("uint16" if self.dtype == "bfloat16" else "uint8" if self.dtype in SMALL else self.dtype)


PORTS = (Port("the/image:0", "float32", (2, 3)), Port("n", "int32", ()))
IMAGE = np.arange(6, dtype=np.float32).reshape(2, 3)
FIT = {"the/image:0": IMAGE, "n": np.int32(4)}


SAVE: Callable[..., None] = np.savez
PACK: Callable[..., None] = np.savez_compressed


def saved(path: Path, **arrays: Any) -> Path:
    SAVE(path, **arrays)
    return path


def npy(array: np.ndarray, *, pickled: bool = False) -> bytes:
    memory = io.BytesIO()
    np.lib.format.write_array(memory, array, allow_pickle=pickled)
    return memory.getvalue()


def zipped(path: Path, *members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return path


def refusals(path: Path, ports: tuple[Port, ...] = PORTS) -> str:
    """What is said of inputs that do not fit; each refusal has a fix."""
    with pytest.raises(InputsError) as caught:
        read_inputs(path, ports)
    assert caught.value.fix
    assert all(refusal.fix for refusal in caught.value.refusals)
    return str(caught.value)


@pytest.mark.parametrize("save", [SAVE, PACK])
def test_arrays_come_in_the_order_of_the_model(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "in.npz", **dict(reversed(FIT.items())))
    image, n = read_inputs(tmp_path / "in.npz", PORTS)
    np.testing.assert_array_equal(image, IMAGE, strict=True)
    np.testing.assert_array_equal(n, np.array(4, np.int32), strict=True)
    assert image.flags.c_contiguous
    assert image.flags.writeable


def test_columns_first_other_byte_order_and_wider_types_of_the_kind_are_brought_to_the_model(tmp_path: Path) -> None:
    for sent in (np.asfortranarray(IMAGE), IMAGE.astype(">f4"), IMAGE.astype(np.float64), IMAGE.astype(np.uint8)):
        image, n = read_inputs(saved(tmp_path / "in.npz", **{"the/image:0": sent, "n": np.int64(4)}), PORTS)
        np.testing.assert_array_equal(image, IMAGE, strict=True)
        np.testing.assert_array_equal(n, np.array(4, np.int32), strict=True)
        assert image.flags.c_contiguous


def test_bfloat16_comes_as_its_bits_or_as_numpy_writes_it(tmp_path: Path) -> None:
    ports = (Port("b", "bfloat16", (2,)),)
    ones = np.ones(2, ml_dtypes.bfloat16)
    for sent in (ones, ones.view(np.uint16)):
        (bits,) = read_inputs(saved(tmp_path / "in.npz", b=sent), ports)
        np.testing.assert_array_equal(bits, np.full(2, 0x3F80, np.uint16), strict=True)
    assert "is float32, not bfloat16" in refusals(saved(tmp_path / "in.npz", b=np.ones(2, np.float32)), ports)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_small_types_come_as_their_codes_or_as_numpy_writes_them(name: str, tmp_path: Path) -> None:
    ports = (Port("b", name, (3,)),)
    codes = np.array([0, 1, 3], np.uint8)
    (bits,) = read_inputs(saved(tmp_path / "in.npz", b=codes), ports)
    np.testing.assert_array_equal(bits, codes, strict=True)
    written = saved(tmp_path / "in.npz", b=codes.view(getattr(ml_dtypes, name)))
    if name == "float8_e5m2":  # to numpy it is a float of one byte, of which there is none
        assert "is no array that can be read" in refusals(written, ports)
    else:
        np.testing.assert_array_equal(read_inputs(written, ports)[0], codes, strict=True)
    assert f"is int8, not {name}" in refusals(saved(tmp_path / "in.npz", b=codes.astype(np.int8)), ports)


def test_empty_arrays_and_no_arrays_are_inputs_too(tmp_path: Path) -> None:
    (empty,) = read_inputs(saved(tmp_path / "in.npz", x=np.empty((0, 3), np.float32)), (Port("x", "float32", (0, 3)),))
    assert empty.shape == (0, 3)
    assert read_inputs(saved(tmp_path / "in.npz"), ()) == []


def test_every_mismatch_is_told_at_once(tmp_path: Path) -> None:
    ports = (*PORTS, Port("absent", "bool", (1,)), Port("whole", "int64", (1,)))
    path = saved(
        tmp_path / "in.npz",
        **{"the/image:0": IMAGE.T, "n": np.float32(1), "arr_0": IMAGE, "whole": np.zeros(1, np.complex64)},
    )
    text = refusals(path, ports)
    for words in (
        "input 'arr_0' is unknown",
        "the model's inputs are 'the/image:0', 'n'",
        "input 'absent' is missing",
        "add it as bool[1]",
        "input 'the/image:0' has shape [3, 2], not [2, 3]",
        "input 'n' is float32, not int32",
        "input 'whole' is complex64, not int64",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("sent", "dtype"),
    [
        (np.array([2**31]), "int32"),
        (np.array([1e39]), "float32"),
        (np.array([300], np.uint16), "uint8"),
        (np.array([70000.0], np.float32), "float16"),
    ],
)
def test_a_value_that_would_change_is_refused(tmp_path: Path, sent: np.ndarray, dtype: str) -> None:
    path = saved(tmp_path / "in.npz", x=sent)
    assert f"has values that {dtype} cannot hold" in refusals(path, (Port("x", dtype, (1,)),))


def test_infinities_and_nan_may_be_narrowed(tmp_path: Path) -> None:
    wide = np.array([np.inf, -np.inf, np.nan, 1e-300])
    (x,) = read_inputs(saved(tmp_path / "in.npz", x=wide), (Port("x", "float32", (4,)),))
    np.testing.assert_array_equal(x, wide.astype(np.float32))


def test_pickled_objects_are_refused_and_not_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "went off",))

    bomb = npy(np.array([Bomb()], object), pickled=True)
    path = zipped(tmp_path / "in.npz", ("the/image:0.npy", bomb), ("n.npy", npy(np.int32(4) + np.zeros((), np.int32))))
    assert "input 'the/image:0' holds pickled objects" in refusals(path)
    text = saved(tmp_path / "text.npz", **{**FIT, "n": np.array("text")})
    assert "input 'n' is <U4" in refusals(text)
    assert not (tmp_path / "went off").exists()


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zipped(tmp_path / "in.npz", ("x.npy", bytes(64 << 20)), compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        assert "input 'x' is unknown" in refusals(path)
        assert "input 'x' is no array" in refusals(path, (Port("x", "float32", (1 << 24,)),))
        monkeypatch.setattr(npz, "MOST_BYTES", 1 << 20)
        assert "unpack to 67108864 bytes" in refusals(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_header_as_long_as_a_bomb_is_not_read(tmp_path: Path) -> None:
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", 64 << 20) + b" " * (64 << 20)
    path = zipped(tmp_path / "in.npz", ("x.npy", content), compression=zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    try:
        assert "input 'x' is no array" in refusals(path, (Port("x", "float32", (4,)),))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packing_that_unpacks_without_a_bound_is_refused(tmp_path: Path, compression: int) -> None:
    path = zipped(tmp_path / "in.npz", ("n.npy", npy(np.zeros((), np.int32))), compression=compression)
    assert "packed in an unusual way" in refusals(path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "in.npz", *((f"x{at}.npy", b"") for at in range(npz.MOST_MEMBERS + 1)))
    assert f"at most {npz.MOST_MEMBERS} are read" in refusals(path)
    monkeypatch.setattr(npz, "MOST_AT_ONCE", 100_000)
    assert "list of members takes more than 100000 bytes" in refusals(path)


def test_names_that_readers_of_archives_disagree_on_are_refused(tmp_path: Path) -> None:
    content = npy(np.zeros((), np.int32))
    plain = zipped(tmp_path / "plain.npz", ("n.npy@x.npy", content)).read_bytes()
    (tmp_path / "nul.npz").write_bytes(plain.replace(b"n.npy@x.npy", b"n.npy\0x.npy"))
    assert r"member 'n.npy\x00x.npy' is not an array" in refusals(tmp_path / "nul.npz")
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(tmp_path / "twice.npz", ("n.npy", content), ("n.npy", content))
    assert "member 'n.npy' is there 2 times" in refusals(tmp_path / "twice.npz")
    zipped(tmp_path / "text.npz", ("readme.txt", b"hello"))
    assert "member 'readme.txt' is not an array" in refusals(tmp_path / "text.npz")


def test_an_array_that_is_shorter_or_longer_than_it_says_is_refused(tmp_path: Path) -> None:
    for content in (npy(IMAGE)[:-4], npy(IMAGE) + b"more"):
        path = zipped(tmp_path / "in.npz", ("the/image:0.npy", content), ("n.npy", npy(np.zeros((), np.int32))))
        assert "bytes of elements, not 24" in refusals(path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK\3\4", b"\x93NUMPY", npy(IMAGE)):
        (tmp_path / "in.npz").write_bytes(content)
        assert "not a whole .npz archive" in refusals(tmp_path / "in.npz")
    assert "not a whole .npz archive" in refusals(tmp_path / "missing.npz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("npz") / "in.npz"
    PACK(path, **FIT)
    return path


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_anywhere_is_refused_or_harmless(whole: Path, data: st.DataObject) -> None:
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.sampled_from([len(content), len(content) - 1, len(content) // 2])) :]
    damaged = whole.with_name("damaged.npz")
    damaged.write_bytes(content)
    try:
        image, n = read_inputs(damaged, PORTS)
    except InputsError:
        return
    np.testing.assert_array_equal(image, IMAGE)
    assert n == 4


def test_outputs_are_read_by_numpy_and_equal_arrays_give_equal_bytes(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "file": IMAGE,
        "a/b:0": np.array(3, np.int64),
        "empty": np.empty((0, 2), np.bool_),
        "turned": IMAGE.T,
    }
    write_outputs(tmp_path / "one.npz", arrays)
    write_outputs(tmp_path / "two.npz", arrays)
    with np.load(tmp_path / "one.npz", allow_pickle=False) as read:
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array, strict=True)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_outputs_that_cannot_be_written_leave_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out.npz").write_bytes(b"older")
    with pytest.raises(UnsupportedModel, match="cannot be in an archive"):
        write_outputs(tmp_path / "out.npz", {"a": IMAGE, "b\0": IMAGE})
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        write_outputs(tmp_path / "out.npz", {"a": np.array([None])})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out.npz", b"older")]


BATCH, LENGTH = Sizes("batch", 1, 4), Sizes("length", 0, 9)
OPEN = (Port("x", "float32", (4, 9, 2), {0: BATCH, 1: LENGTH}), Port("mask", "int64", (4, 9), {0: BATCH, 1: LENGTH}))


def of_sizes(x: tuple[int, ...], mask: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"x": np.ones(x, np.float32), "mask": np.zeros(mask, np.int64)}


@pytest.mark.parametrize(("batch", "length"), [(1, 0), (4, 9), (2, 5)])
def test_open_axes_take_every_size_in_their_range(batch: int, length: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npz", **of_sizes((batch, length, 2), (batch, length)))
    assert [array.shape for array in read_inputs(path, OPEN)] == [(batch, length, 2), (batch, length)]


@pytest.mark.parametrize(
    ("x", "mask", "said"),
    [
        ((5, 3, 2), (4, 3), "input 'x' has shape [5, 3, 2], not [batch=1..4, length=0..9, 2]"),
        ((0, 3, 2), (1, 3), "input 'x' has shape [0, 3, 2], not [batch=1..4, length=0..9, 2]"),
        ((1, 3, 3), (1, 3), "input 'x' has shape [1, 3, 3], not [batch=1..4, length=0..9, 2]"),
        ((1, 3, 2), (1,), "input 'mask' has shape [1], not [batch=1..4, length=0..9]"),
        (
            (2, 3, 2),
            (2, 4),
            "dimension 'length' has two sizes: 3 in axis 1 of input 'x', 4 in axis 1 of input 'mask'",
        ),
    ],
)
def test_sizes_out_of_range_or_at_odds_are_refused(
    x: tuple[int, ...], mask: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "x.npz", **of_sizes(x, mask))
    with pytest.raises(InputsError) as caught:
        read_inputs(path, OPEN)
    assert [one.reason for one in caught.value.refusals] == [said]


def test_a_size_that_is_no_multiple_of_its_step_is_refused(tmp_path: Path) -> None:
    port = Port("x", "float32", (8,), {0: Sizes("n", 4, 8, 4)})
    assert read_inputs(saved(tmp_path / "x.npz", x=np.zeros(4, np.float32)), [port])[0].shape == (4,)
    with pytest.raises(InputsError) as caught:
        read_inputs(saved(tmp_path / "x.npz", x=np.zeros(6, np.float32)), [port])
    assert caught.value.refusals[0].reason == "input 'x' has shape [6], not [n=4..8 by 4]"


def test_exact_shapes_are_preferred_to_ranges_that_hold_them(tmp_path: Path) -> None:
    exact = (Port("x", "float32", (2, 3, 2)), Port("mask", "int64", (2, 3)))
    few = {0: BATCH, 1: Sizes("length", 0, 5)}
    small = [replace(OPEN[0], shape=(4, 5, 2), open=few), replace(OPEN[1], shape=(4, 5), open=few)]
    for length, at in ((3, 1), (4, 2), (6, 0)):
        path = saved(tmp_path / "x.npz", **of_sizes((2, length, 2), (2, length)))
        assert read_fitting(path, [OPEN, exact, small])[0] == at
