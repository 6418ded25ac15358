"""A kernel includes the headers of few kernels that declare what it calls, and no others."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from bench.drawn.layers import models
from bench.replay.kernels.lowering import found_in
from compiler.codegen.build import INCLUDED, find_toolchain, write_sources
from compiler.codegen.writer import Writer
from compiler.devices.cpu.emit.library import WHERE_NEEDED, runtime_headers, with_headers
from compiler.devices.cpu.target import resolve

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
BEGINNINGS = {
    "tw_short.h": "tw_load_bf16",
    "tw_short_math.h": "tw_erf_bf16",
    "tw_short_sigmoid.h": "tw_sigmoid_bf16",
    "tw_short_exp.h": "tw_exp_bf16",
    "tw_short_gelu.h": "tw_gelu_bf16",
    "tw_pixels.h": "tw_pixel",
    "tw_tiles.h": "tw_tile",
    "tw_quantise.h": "tw_quantised",
    "tw_bytes.h": "tw_bytes",
    "tw_near.h": "tw_exp_near",
    "tw_quarters.h": "tw_quarter",
    "tw_spread.h": "tw_spread",
    "tw_table.h": "tw_table",
    "tw_pick.h": "tw_pick",
    "tw_codebook.h": "tw_coded",
    "tw_digits.h": "tw_digits",
}
"""How the names that a kernel uses of each header begin."""


def needed(text: str) -> set[str]:
    """The headers of names that stand in a kernel's code."""
    code = re.sub(r"#include [^\n]*", "", COMMENT.sub("", text))
    used = set(re.findall(r"\btw_\w+", code))
    return {header for header, beginning in BEGINNINGS.items() if any(name.startswith(beginning) for name in used)}


def test_drawn_kernels_include_what_they_call_and_nothing_else() -> None:
    seen = set[str]()
    for model in models(2):
        asked = [one for one in model.asked if one[0].startswith("cpu:")]
        for found, text in found_in(model.data, model.name, asked, inner=model.inner):
            if found.algorithm:
                headers = {header for header in INCLUDED.findall(text) if header in WHERE_NEEDED}
                assert headers == needed(text), found.name
                seen |= headers
    assert len(seen) > 12, seen


def test_every_header_is_of_kernels_but_five_of_the_host() -> None:
    assert {*WHERE_NEEDED} - {*BEGINNINGS} == {"tw_expand.h", "state.h", "tw_state.h", "tw_page.h", "tw_page_lanes.h"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compiler makes code for another machine")
def test_a_kernel_without_avx512_declares_nothing_of_it(tmp_path: Path) -> None:
    text = "".join(
        f'#include "{header}"\n' for header in ("tw_kernel.h", *WHERE_NEEDED) if not header.endswith("state.h")
    )
    write_sources(tmp_path, {**runtime_headers([text]), "kernel.c": text})

    def declared(profile: str) -> str:
        target = resolve(f"cpu:{profile}")
        compiler = find_toolchain()
        if "gcc" not in compiler.version and "GCC" not in compiler.version:
            pytest.skip("the compiler is not GCC")
        command = [*compiler.command, *target.flags, f"-DTW_LANES={target.vector_floats}", "-E", "-P", "kernel.c"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "_mm512_" in declared("x86-64-v4")
    plain = declared("x86-64-v3")
    assert "_mm256_fmadd_ps" in plain
    assert "_mm512_" not in plain


def test_a_name_in_a_comment_includes_nothing() -> None:
    writer = Writer()
    writer.line("/* as tw_tile_zero does, and tw_bytes */")
    assert with_headers(writer.text(), writer.headers) == writer.text()


def test_headers_stand_in_one_order_whichever_was_said_first() -> None:
    writer = Writer()
    for header in ("tw_digits.h", "tw_short.h", "tw_digits.h"):
        writer.include(header)
    writer.line("x;")
    assert with_headers(writer.text(), writer.headers) == '#include "tw_short.h"\n#include "tw_digits.h"\nx;\n'
