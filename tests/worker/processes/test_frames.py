from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.processes import frames

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4), st.integers(1, 40))
def test_frames_survive_being_cut_into_any_pieces(messages: list[dict[str, object]], size: int) -> None:
    messages = [{**message, "kind": "event"} for message in messages]
    stream = b"".join(map(frames.encode, messages))
    decoder = frames.Decoder()
    got = [m for start in range(0, len(stream), size) for m in decoder.feed(stream[start : start + size])]
    assert got == messages
    assert decoder.pending == 0


def test_a_frame_longer_than_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(frames.GarbledFrame, match="claims 4294967295 bytes"):
        list(frames.Decoder().feed(b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[1]", b'{"kind": 3}', b'{"no": 1}', b"\xff", b'{"kind": "a", "x": NaN}', b"[" * 100_000),
        b'{"kind": "a", "x": 1' + b"0" * 400 + b"}",
        b'{"kind": "a", "x": ' + b"[" * 100 + b"]" * 100 + b"}",
    ],
)
def test_what_is_not_an_object_with_a_kind_is_garbled(body: bytes) -> None:
    with pytest.raises(frames.GarbledFrame):
        list(frames.Decoder().feed(struct.pack(">I", len(body)) + body))


def test_infinity_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        frames.encode({"kind": "event", "x": float("inf")})


def test_write_sends_one_whole_frame() -> None:
    reader, writer = os.pipe()
    frames.write(writer, {"kind": "a"})
    assert list(frames.Decoder().feed(os.read(reader, 100))) == [{"kind": "a"}]
    os.close(reader)
    os.close(writer)
