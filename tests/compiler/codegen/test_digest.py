"""The digest of a kernel's code: equal for equal tokens, another for other code, flags, or headers that it uses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.codegen.digest import source_digest
from compiler.devices.cpu.emit.library import runtime_headers
from compiler.devices.cpu.emit.lower import INCLUDES, digest_of, lower, source_of
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import PROFILES
from compiler.devices.cuda.candidates import Candidates
from compiler.devices.cuda.target import resolve
from compiler.devices.kinds import propose
from compiler.ir.machine import Workload
from tests.compiler.tuning.fakes import POINTWISE, workload

HEADER = """
#pragma once
#define WIDE 8 /* lanes */
#if WIDE > 4
#define LIMIT 3
#else
#define LIMIT 2
#endif
struct tw_pair { int a, b; };
static inline int tw_twice(int x) { return x + x; }
static inline int tw_once(int x) {
    return x < LIMIT ? x : tw_twice(x) / 2;
}
static inline struct tw_pair tw_both(int x) { return (struct tw_pair){x, x}; }
#define TW_MADE(name) static inline int tw_made_##name(int x) { return x; }
TW_MADE(plain)
"""
TEXT = '#include "h.h"\n/* Conv: what it computes */\nvoid k3_conv(int *p) {\n    p[0] = tw_once(p[1]); // of one\n}\n'


def digest(text: str = TEXT, header: str = HEADER, name: str = "k3_conv", *facts: object) -> str:
    return source_digest(name, text, {"h.h": header, "other.h": "int unused;"}, facts)


@pytest.mark.parametrize(
    "same",
    [
        digest(TEXT.replace("k3_conv", "k12_conv_add"), name="k12_conv_add"),
        digest(TEXT.replace("Conv: what", "ConvAdd: of other names,\n * what").replace("// of one", "")),
        digest(TEXT.replace("    ", "\t")),
        digest(header=HEADER.replace("/* lanes */", "// so many")),
        digest(header=HEADER + "static inline int tw_new(int x) { return tw_twice(x); }\n"),
        digest(header=HEADER.replace("struct tw_pair tw_both(int x) {", "struct tw_pair tw_both(int x) { x++;")),
    ],
    ids=["name", "comments", "blanks", "comment of a header", "a new function", "a function that is not used"],
)
def test_what_changes_no_code_changes_no_digest(same: str) -> None:
    assert same == digest()


@pytest.mark.parametrize(
    "other",
    [
        digest(TEXT.replace("p[1]", "p[2]")),
        digest(header=HEADER.replace("x < LIMIT", "x <= LIMIT")),
        digest(header=HEADER.replace("x + x", "2 * x")),
        digest(header=HEADER.replace("LIMIT 3", "LIMIT 4")),
        digest(header=HEADER.replace("WIDE 8", "WIDE 4")),
        digest(TEXT, HEADER, "k3_conv", "-O2"),
    ],
    ids=["the text", "what it calls", "what that calls", "a macro", "a condition of a macro", "flags"],
)
def test_a_change_of_anything_that_the_code_uses_changes_the_digest(other: str) -> None:
    assert other != digest()


def test_a_text_that_calls_what_a_macro_made_depends_on_the_whole_header() -> None:
    text = TEXT.replace("tw_once", "tw_made_plain")
    assert digest(text) == digest(text, HEADER + "/* nothing */")
    assert digest(text) != digest(text, HEADER.replace("{ return x; }", "{ return x + 0; }"))
    assert digest(text) != digest(text, HEADER.replace("{x, x}", "{x, 0}"))


def test_a_header_that_a_header_includes_counts() -> None:
    headers = {"h.h": '#include "deep.h"\n', "deep.h": "static inline int tw_once(int x) { return x; }"}
    deeper = {**headers, "deep.h": "static inline int tw_once(int x) { return -x; }"}
    assert source_digest("k3_conv", TEXT, headers, ()) != source_digest("k3_conv", TEXT, deeper, ())


@pytest.fixture(scope="module")
def product() -> Workload:
    return workload(POINTWISE, (False, True))


def test_every_tile_of_a_kernel_on_a_cpu_has_its_digest_whatever_the_function_is_called(product: Workload) -> None:
    target = replace(PROFILES[0], hardware="here")
    tiles = [option.tile for option in propose(product, target, 2)][:6]
    digests = [source_of(product, tile, target) for tile in tiles]
    assert len({*digests}) == len(tiles) == 6
    renamed = replace(product, kernel=replace(product.kernel, family="AnotherName"))
    assert digest_of(lower("k77_another_name", renamed, tiles[0], target), target) == digests[0]
    assert source_of(renamed, tiles[0], replace(target, rates=Rates(fma_per_ns=123.0))) == digests[0]
    assert source_of(product, tiles[0], PROFILES[1]) != digests[0], "other instructions"


def test_a_fix_of_what_kernels_call_changes_the_digest_of_those_that_call_it(product: Workload) -> None:
    target = PROFILES[0]
    kernel = lower("kernel", product, propose(product, target, 1)[0].tile, target)
    headers = runtime_headers()

    def after(old: str, new: str) -> str:
        assert headers["tw_kernel.h"].count(old) >= 1
        fixed = {**headers, "tw_kernel.h": headers["tw_kernel.h"].replace(old, new)}
        return source_digest("kernel", INCLUDES + kernel.text, fixed, ())

    now = source_digest("kernel", INCLUDES + kernel.text, headers, ())
    assert "tw_store" in kernel.text
    assert after("*(vf_any *)p = x;", "*(vf_any *)p = x + x;") != now
    assert "tw_exp" not in kernel.text
    assert after("TW_INLINE vf tw_exp(vf x) {", "TW_INLINE vf tw_exp(vf x) { x += x;") == now


def test_every_tile_of_a_kernel_on_a_gpu_has_its_digest(product: Workload) -> None:
    target = resolve("cuda:sm_90")
    candidates = Candidates(target)
    tiles = [option.tile for option in propose(product, target, 1)][:12]
    digests = [candidates.source_of(product, tile) for tile in tiles]
    assert len({*digests}) == len(tiles)
    assert Candidates(resolve("cuda:sm_80")).source_of(product, tiles[0]) != digests[0]
