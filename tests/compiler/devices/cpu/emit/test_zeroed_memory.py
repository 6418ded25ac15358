"""The memory of programs that stop at sizes begins as zeros, whatever the process had in it before."""

from __future__ import annotations

import ctypes

import pytest

from compiler.codegen.build import compile_library, find_toolchain, host_headers
from compiler.codegen.writer import Writer
from compiler.devices.cpu.emit.host import _zeroed_memory
from compiler.devices.cpu.target import this_machine

DIRTY = r"""
#include <stdlib.h>
#include <string.h>
/* Memory in which something was before. */
static void *dirty_alloc(size_t alignment, size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, alignment, bytes)) return NULL;
    return memset(memory, 127, bytes);
}
"""
LEFT = r"""
/* How many bytes of memory that is handed out are not zero. */
__attribute__((visibility("default"))) long left(size_t alignment, size_t bytes) {
    unsigned char *const memory = aligned_alloc(alignment, bytes);
    if (!memory) return -1;
    long count = 0;
    for (size_t at = 0; at < bytes; at++) count += memory[at] != 0;
    free(memory);
    return count;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    writer = Writer()
    _zeroed_memory(writer)
    assert "= aligned_alloc(" in writer.text()
    assert "#define OWN_MEMORY 1" in writer.text(), "no other model's run leaves anything in it"
    source = DIRTY + writer.text().replace("= aligned_alloc(", "= dirty_alloc(") + LEFT
    path = tmp_path_factory.mktemp("zeroed") / "zeroed.so"
    path.write_bytes(compile_library({"zeroed.c": source}, host_headers(), this_machine(), find_toolchain("")))
    library = ctypes.CDLL(str(path))
    library.left.argtypes, library.left.restype = (ctypes.c_size_t, ctypes.c_size_t), ctypes.c_long
    return library


@pytest.mark.parametrize(("alignment", "count"), [(64, 9600), (4096, 16384), (4096, 5000)])
def test_nothing_is_left_in_it_of_what_was_there(library: ctypes.CDLL, alignment: int, count: int) -> None:
    assert library.left(alignment, count) == 0
