"""What the report's page says of devices that share a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.ir.plans.parts import After, Edge, Part, Parts
from compiler.pack.devices_section import Message, Streamed, devices_section

PARTS = Parts(
    ("cpu:0", "cpu:1@<b>"),
    (Part(0, (0, 1, 2), (After(1, 2),)), Part(1, (3,), (After(0, 0),))),
    (Edge(7, 100),),
    "pipeline",
    5e-3,
    3e-3,
)


def test_each_device_is_a_row_with_its_parts_and_how_busy_it_is() -> None:
    page = devices_section(PARTS, Streamed([4e-3, 8e-3], [3e-3, 1.5e-3], 3.5e-3), {})
    assert page.count("<tr>") == 3
    assert "part 1: 3 kernels" in page
    assert "part 2: 1 kernel<" in page
    assert "100%" in page
    assert "50%" in page
    assert "cpu:1@&lt;b&gt;" in page
    assert "<b>" not in page
    assert "every 3 ms (predicted), 3.50 ms (measured), with up to 5 in flight" in page
    assert "1 edge, 200 bytes" in page


def test_what_was_not_measured_is_not_told() -> None:
    assert "measured" not in devices_section(PARTS, Streamed([4e-3, 8e-3], [3e-3, 1.5e-3]), {})


def test_where_a_device_has_a_memory_of_its_own_a_frame_is_drawn_with_what_is_copied() -> None:
    drawn = Streamed([4e-3, 8e-3], [3e-3, 1.5e-3], spans=[(0.0, 3e-3), (3.5e-3, 5e-3)], messages=[Message(0, 1, 96)])
    page = devices_section(replace(PARTS, apart=(1,)), drawn, {})
    assert page.count("<rect ") == 2
    assert "part 1: 3 kernels, 3 ms</title>" in page
    assert "part 1 to part 2: 96 bytes, copied between memories</title>" in page
    assert 'x1="620.0" y1="41" x2="705.0" y2="71"' in page, "from where the first part ends to where the second begins"
    assert "<b>" not in page
    assert "<svg" not in devices_section(PARTS, Streamed([4e-3, 8e-3], [3e-3, 1.5e-3]), {})


def test_the_bound_is_the_sum_of_the_speeds() -> None:
    assert Streamed([4e-3, 8e-3], []).bound_s == pytest.approx(1 / (250 + 125))
    assert Streamed([0.0, 1.0], []).bound_s == 0.0
