"""Libraries for another machine run here: in a process of qemu-user, of Wine, or, for a browser, of Node.js.

runner    the program inside (runner.c, runner.mjs), which opens a library and carries out requests
emulator  which emulator there is for a target, and its command line
node      the same for modules of WebAssembly
wine      the same for Windows
model     a packed artifact, opened by its loader, with its library in the emulator
"""

from __future__ import annotations

from compiler.codegen.build import WASM, Toolchain
from compiler.contract.systems import WINDOWS
from compiler.devices.cpu.emulation.emulator import Emulator, find_emulator
from compiler.devices.cpu.emulation.node import find_node
from compiler.devices.cpu.emulation.wine import find_wine
from compiler.devices.cpu.target import CpuTarget


def emulator_for(target: CpuTarget, toolchain: Toolchain) -> Emulator | None:
    """What runs libraries that `toolchain` builds for a target of elsewhere; None where nothing does."""
    if target.system == WINDOWS.name:
        return find_wine(target, toolchain)
    return (find_node if target.machine == WASM else find_emulator)(target, toolchain)
