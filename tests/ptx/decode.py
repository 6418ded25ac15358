"""A kernel and all that it calls made into steps: operands of instructions, registers, parameters of calls.

Source: "PTX ISA", "Instruction Operands", "Special Registers" and "Abstracting the ABI".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.ptx.fault import Fault
from tests.ptx.gang import Code, Control, Gang, Lanes, Step
from tests.ptx.memory import PARAMETERS, WINDOW_BITS
from tests.ptx.parse import BYTES, Function, Instruction, Module, Variable, split
from tests.ptx.values import UNSIGNED, literal, resized

Read = Callable[[Gang, Lanes], np.ndarray]
"""Bits of an operand, of each thread or the same of all."""
Write = Callable[[Gang, Lanes, np.ndarray], None]
Decoder = Callable[["Operands"], "Step | Controlled"]
NUMBER = re.compile(r"-?(0[fFdD][0-9a-fA-F]+|0x[0-9a-fA-F]+|\d+)U?$")
ADDRESS = re.compile(r"\[\s*([\w$%.#]+)\s*(?:\+\s*(-?\w+))?\s*\]$")
AXES = "xyz"


@dataclass(frozen=True)
class Controlled:
    """What an instruction does that steers threads: it says itself where they go on."""

    run: Control


def _axis(gang: Gang, name: str, axis: int) -> np.ndarray:
    x, y = (gang.launch.block if name == "tid" else gang.launch.grid)[:2]
    number = gang.thread if name == "tid" else gang.number
    return (number % x, number // x % y, number // x // y)[axis]


SPECIAL: Mapping[str, Callable[[Gang], np.ndarray]] = {
    **{f"%tid.{axis}": lambda gang, at=at: _axis(gang, "tid", at) for at, axis in enumerate(AXES)},  # type: ignore[misc]
    **{f"%ctaid.{axis}": lambda gang, at=at: _axis(gang, "ctaid", at) for at, axis in enumerate(AXES)},  # type: ignore[misc]
    **{f"%ntid.{axis}": lambda gang, at=at: np.array(gang.launch.block[at]) for at, axis in enumerate(AXES)},  # type: ignore[misc]
    **{f"%nctaid.{axis}": lambda gang, at=at: np.array(gang.launch.grid[at]) for at, axis in enumerate(AXES)},  # type: ignore[misc]
    "%laneid": lambda gang: gang.lane,
    "%warpid": lambda gang: gang.thread // 32,
    "%lanemask_lt": lambda gang: (1 << gang.lane) - 1,
    "%cluster_ctarank": lambda gang: gang.rank,
    "%cluster_nctarank": lambda gang: np.array(gang.launch.cluster),
    "%clock": lambda gang: np.array(gang.steps),
    "%clock64": lambda gang: np.array(gang.steps),
    "%globaltimer": lambda gang: np.array(gang.steps),
    "%smid": lambda gang: np.array(0),
    "%nsmid": lambda gang: np.array(2),
}


@dataclass
class Linker:
    """One kernel with all functions that it calls: where each has its code, registers and parameters."""

    module: Module
    addresses: Mapping[str, int]
    """Of variables in global and constant memory."""
    shared: Mapping[str, int]
    """Of variables in shared memory, within a block's."""
    kinds: list[str] = field(default_factory=list)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    local: dict[tuple[str, str], int] = field(default_factory=dict)
    local_bytes: int = 0
    starts: dict[str, int] = field(default_factory=dict)

    def register(self, function: Function, name: str) -> int:
        """The number of a register."""
        key = (function.name, name)
        if key not in self.numbers:
            self.numbers[key] = len(self.kinds)
            self.kinds.append(function.registers[name])
        return self.numbers[key]

    def place(self, function: str, one: Variable, name: str) -> int:
        """Where a variable or parameter of a function lies in local memory."""
        if (function, name) not in self.local:
            align = max(one.align, 8)
            self.local[function, name] = -(-self.local_bytes // align) * align
            self.local_bytes = self.local[function, name] + one.bytes
        return self.local[function, name]


@dataclass(frozen=True)
class Operands:
    """What decodes one instruction. `entry` is the kernel, `base` where its function's code begins."""

    linker: Linker
    function: Function
    instruction: Instruction
    base: int

    @property
    def words(self) -> tuple[str, ...]:
        return self.instruction.words

    @property
    def texts(self) -> tuple[str, ...]:
        return self.instruction.operands

    def read(self, text: str, kind: str) -> Read:
        """An operand as bits of a type's width; of a predicate, bool. Raises Fault for what it cannot be."""
        if text.startswith("!"):
            inner = self.read(text[1:], kind)
            return lambda gang, lanes: ~inner(gang, lanes)
        width = BYTES[kind]
        if text in self.function.registers:
            number, own = self.linker.register(self.function, text), self.function.registers[text]
            if (own == "pred") != (kind == "pred"):
                raise Fault("syntax", f"{text} is of type {own}: {self.instruction.text}")
            if BYTES[own] == width:
                return lambda gang, lanes: gang.registers[number][lanes]
            return lambda gang, lanes: resized(gang.registers[number][lanes], width)
        if text in SPECIAL:
            special, unsigned = SPECIAL[text], UNSIGNED[width]

            def value(gang: Gang, lanes: Lanes) -> np.ndarray:
                found = special(gang).astype(unsigned)
                return found[lanes] if found.ndim else found

            return value
        if text == "WARP_SZ":
            text = "32"
        if kind == "pred" and NUMBER.match(text):
            truth = np.array(int(text, 0) != 0)
            return lambda gang, lanes: truth
        if NUMBER.match(text):
            constant = literal(text, kind)
            return lambda gang, lanes: constant
        return self._address_of(text, width)

    def _address_of(self, name: str, width: int) -> Read:
        """The address of a variable, in its own state space."""
        unsigned = UNSIGNED[width]
        if name in self.linker.shared:
            offset = self.linker.shared[name]
            return lambda gang, lanes: ((gang.rank[lanes] + 1 << WINDOW_BITS) + offset).astype(unsigned)
        if name in self.function.local:
            at = np.array(self.linker.place(self.function.name, self.function.local[name], name), unsigned)
            return lambda gang, lanes: at
        if name in self.linker.addresses:
            address = np.array(self.linker.addresses[name], unsigned)
            return lambda gang, lanes: address
        if self.function.is_entry and name in (one.name for one in self.function.parameters):
            at = np.array(PARAMETERS + parameter_at(self.function)[name], np.uint64)
            return lambda gang, lanes: at
        raise Fault("unknown", f"operand {name} of {self.instruction.text}")

    def write(self, text: str, kind: str = "") -> Write:
        """Puts bits into a register: extended by their sign where `kind` is signed, else by zeros."""
        if text == "_":
            return lambda gang, lanes, bits: None
        number, own = self.linker.register(self.function, text), self.function.registers[text]
        if own == "pred":

            def put_truth(gang: Gang, lanes: Lanes, bits: np.ndarray) -> None:
                gang.registers[number][lanes] = bits

            return put_truth
        signed, width = kind[:1] == "s", BYTES[own]

        def put(gang: Gang, lanes: Lanes, bits: np.ndarray) -> None:
            if signed and bits.dtype.itemsize < width:
                bits = bits.view(f"i{bits.dtype.itemsize}").astype(f"i{width}").view(UNSIGNED[width])
            gang.registers[number][lanes] = bits

        return put

    def reads(self, kind: str, first: int = 0, past: int | None = None) -> list[Read]:
        """The operands from one to before another."""
        return [self.read(text, kind) for text in self.texts[first:past]]

    def many(self, text: str) -> tuple[str, ...]:
        """The operands of a vector in braces, or one alone."""
        return split(text[1:-1]) if text.startswith("{") else (text,)

    def address(self, text: str, kind: str = "u64") -> Read:
        """Addresses of `[base + offset]`, as int64."""
        found = ADDRESS.match(text)
        if found is None:
            raise Fault("syntax", f"address {text}")
        offset, base = int(found[2] or "0", 0), self.read(found[1], kind)
        return lambda gang, lanes: spread(gang, lanes, base(gang, lanes)).astype(np.int64) + offset


def spread(gang: Gang, lanes: Lanes, bits: np.ndarray) -> np.ndarray:
    """One value for each thread."""
    bits = np.asarray(bits)
    return bits if bits.ndim else np.full(gang.of(lanes).shape, bits)


def parameter_at(function: Function) -> dict[str, int]:
    """Where each parameter of a kernel begins."""
    found, at = {}, 0
    for one in function.parameters:
        at = -(-at // one.align) * one.align
        found[one.name] = at
        at += one.bytes
    return found


def static_shared(module: Module) -> tuple[dict[str, int], int]:
    """Where variables in shared memory lie, and where the dynamic part begins, which external ones name."""
    at, places = 0, {}
    for one in module.shared.values():
        if not one.external:
            at = -(-at // one.align) * one.align
            places[one.name] = at
            at += one.bytes
    align = max((one.align for one in module.shared.values() if one.external), default=1)
    at = -(-at // align) * align
    return places | {one.name: at for one in module.shared.values() if one.external}, at


def grain_of(functions: list[Function]) -> int:
    """The least number of bytes that an access which may be to shared memory has, at most 4."""
    least = 4
    for function in functions:
        for one in function.code:
            space = {word.partition("::")[0] for word in one.words}
            if one.words[0] in ("ld", "st", "atom", "red") and not space & {"global", "param", "local", "const"}:
                least = min(least, BYTES[one.words[-1]] * _vector(one.words))
    return least


def _vector(words: tuple[str, ...]) -> int:
    return next((int(word[1:]) for word in words if re.fullmatch(r"v[248]", word)), 1)


def reachable(module: Module, entry: str) -> list[Function]:
    """A kernel, and all functions that it calls."""
    found, left = [], [entry]
    while left:
        function = module.functions[left.pop()]
        if function in found:
            continue
        found.append(function)
        left += [name for one in function.code if one.words[0] == "call" for name in [called(one)]]
    return found


def called(one: Instruction) -> str:
    """The function that a call names."""
    return next(text for text in one.operands if not text.startswith("("))


def link(module: Module, entry: str, addresses: Mapping[str, int], decoders: Mapping[str, Decoder]) -> Code:
    """A kernel ready to run. Raises Fault for an instruction that no decoder is for."""
    functions = reachable(module, entry)
    shared, static = static_shared(module)
    linker = Linker(module, addresses, shared)
    for function in functions:
        linker.starts[function.name] = sum(len(one.code) + 1 for one in functions[: functions.index(function)])
        if not function.is_entry:
            for variable in (*function.parameters, *function.results):
                linker.place(function.name, variable, variable.name)
    steps: list[Step | None] = []
    controls: list[Control | None] = []
    texts = []
    for function in functions:
        for one in (*function.code, Instruction("", False, ("ret",), (), "the end")):
            decoder = decoders.get(one.words[0])
            if decoder is None:
                raise Fault("unknown", f"instruction {one.text}")
            operands = Operands(linker, function, one, linker.starts[function.name])
            made = decoder(operands)
            steps.append(None if isinstance(made, Controlled) else guarded(operands, made))
            controls.append(made.run if isinstance(made, Controlled) else None)
            texts.append(one.text)
    kinds, grain = tuple(linker.kinds), grain_of(functions)
    return Code(tuple(steps), tuple(controls), tuple(texts), kinds, linker.local_bytes, grain, shared, static)


def guarded(operands: Operands, step: Step) -> Step:
    """A step for those threads alone whose guard holds."""
    if not operands.instruction.guard:
        return step
    holds = guard(operands)

    def run(gang: Gang, lanes: Lanes) -> None:
        truth = holds(gang, lanes)
        if truth.all():
            step(gang, lanes)
        elif truth.any():
            step(gang, gang.of(lanes)[truth])

    return run


def guard(operands: Operands) -> Read:
    """Whether the guard holds; without one it does."""
    if not operands.instruction.guard:
        return lambda gang, lanes: np.ones(gang.of(lanes).size, bool)
    truth = operands.read(operands.instruction.guard, "pred")
    if operands.instruction.negated:
        return lambda gang, lanes: ~truth(gang, lanes)
    return truth
