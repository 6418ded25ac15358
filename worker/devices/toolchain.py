"""The C compiler of this machine, as far as it takes one to be a builder."""

from __future__ import annotations

from compiler.codegen.build import Toolchain, find_toolchain
from compiler.errors import ToolchainMissing
from service.logs import logger

log = logger(__name__)


def usable(compiler: str, machine: str = "") -> Toolchain | None:
    """The compiler of the user's choice, or the one that is found, for an architecture; empty: this one.

    None, and logged, where there is none.
    """
    try:
        return find_toolchain(compiler, machine)
    except ToolchainMissing as error:
        log.warning(f"this worker cannot build{machine and f' for {machine}'}", reason=error.message, fix=error.fix)
        return None
