"""PTX as text, taken apart.

Source: "PTX ISA", chapters "Syntax", "State Spaces, Types, and Variables" and "Directives".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tests.ptx.fault import Fault

BYTES = {
    **{"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2},
    **{"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4},
    **{"b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16},
}
"""Of one value of each fundamental type, and of those that instructions name."""
VARIABLE = re.compile(r"\.(\w+)\s+([\w$%]+)\s*((?:\[\d*\]\s*)*)(?:=\s*(.*))?$", re.DOTALL)
LABEL = re.compile(r"\s*([\w$]+):(?!:)")
FUNCTION = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)*\.(entry|func)\b")
DIRECTIVE = re.compile(r"\s*\.(?:version|target|address_size)[^\n]*")
INSTRUCTION = re.compile(r"(?:@(!?)([\w$%#]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
POINTER = re.compile(r"\.ptr\b(\s*\.(global|const|local|shared))?(\s*\.align\s+\d+)?")
"""What a parameter may say of the memory that it points to."""
SPACES = (".local", ".shared", ".param", ".const", ".global")


@dataclass(frozen=True)
class Variable:
    """A declared variable: `count` values of a type. `initial` are its literals, none where it is not initialised."""

    name: str
    type: str
    count: int
    align: int
    initial: tuple[str, ...] = ()
    external: bool = False

    @property
    def bytes(self) -> int:
        return self.count * BYTES[self.type]


@dataclass(frozen=True)
class Instruction:
    """One instruction: guard predicate (and whether it is negated), opcode split at its dots, operands, the text."""

    guard: str
    negated: bool
    words: tuple[str, ...]
    operands: tuple[str, ...]
    text: str


@dataclass
class Function:
    """A kernel or a function: its code, and for each label the position of the instruction behind it."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    """The type of each register."""
    local: dict[str, Variable] = field(default_factory=dict)
    """Variables of a thread, and parameters of the calls that it makes."""
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Tables of labels that `brx.idx` names."""


@dataclass
class Module:
    """All that one unit of PTX declares."""

    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    """In global and constant memory."""
    shared: dict[str, Variable] = field(default_factory=dict)


def parse(text: str) -> Module:
    """The module that a text declares. Raises Fault for what is not understood."""
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL))
    module, at = Module(), 0
    text += "\n"
    while (at := _past_space(text, at)) < len(text):
        if found := DIRECTIVE.match(text, at):
            at = found.end()
            continue
        if found := FUNCTION.match(text, at):
            at = _function(module, text, found.end(), is_entry=found[1] == "entry")
            continue
        end = text.index(";", at)
        _declare(module, text[at:end])
        at = end + 1
    return module


def split(text: str) -> tuple[str, ...]:
    """Operands, separated by commas outside of brackets of any kind."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return (*parts, last) if last else tuple(parts)


def variable(text: str) -> Variable:
    """A declaration such as `.shared .align 4 .b8 name[16] = {0, 1}`. Raises Fault."""
    found = VARIABLE.search(text.strip())
    if found is None or found[1] not in BYTES:
        raise Fault("syntax", f"this is no declaration of a variable: {text[:120]}")
    kind, name, sizes, literals = found.groups()
    count = prod(int(size or 0) for size in re.findall(r"\[(\d*)\]", sizes))
    align = re.search(r"\.align\s+(\d+)", text)
    initial = split(literals.strip().strip("{}")) if literals else ()
    return Variable(name, kind, count, int(align[1]) if align else BYTES[kind], initial, ".extern" in text)


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _declare(module: Module, text: str) -> None:
    one = variable(text)
    (module.shared if ".shared" in text else module.variables)[one.name] = one


def _function(module: Module, text: str, at: int, *, is_entry: bool) -> int:
    """Reads a function whose name begins at or after `at`; where the text goes on behind it."""
    results: tuple[Variable, ...] = ()
    if not is_entry and (found := re.compile(r"\s*\(([^)]*)\)").match(text, at)):
        results, at = tuple(map(variable, split(found[1]))), found.end()
    found = re.compile(r"\s*([\w$]+)\s*(?:\(([^)]*)\))?").match(text, at)
    assert found is not None
    parameters = tuple(variable(re.sub(POINTER, "", one)) for one in split(found[2] or ""))
    function = Function(found[1], is_entry, parameters, results)
    at = found.end()
    while text[at] not in "{;":
        at += 1
    if text[at] == ";":  # a declaration alone
        return at + 1
    scopes: list[dict[str, str]] = [{}]
    names = iter(range(1_000_000))
    at += 1
    while scopes:
        at = _past_space(text, at)
        if text[at] in "{}":
            scopes.append({}) if text[at] == "{" else scopes.pop()
            at += 1
        elif found := LABEL.match(text, at):
            at = _label(function, found, text)
        else:
            end = text.index(";", at)
            _statement(module, function, " ".join(text[at:end].split()), scopes, names)
            at = end + 1
    module.functions[function.name] = function
    return at


def _label(function: Function, found: re.Match[str], text: str) -> int:
    """A label, or the table of labels or prototype that it names."""
    table = re.compile(r"\s*\.(branchtargets|callprototype)\s*([^;]*);").match(text, found.end())
    if table is None:
        function.labels[found[1]] = len(function.code)
        return found.end()
    if table[1] == "branchtargets":
        function.targets[found[1]] = split(table[2])
    return table.end()


def _statement(
    module: Module, function: Function, text: str, scopes: list[dict[str, str]], names: Iterator[int]
) -> None:
    """A directive, a declaration or an instruction. Names that a scope declares are made unique."""
    if text.startswith(".reg"):
        kind, declared = re.match(r"\.reg \.(\w+) (.*)", text).groups()  # type: ignore[union-attr]
        for name in split(declared):
            if many := re.match(r"(.+)<(\d+)>", name):
                function.registers |= {f"{many[1]}{number}": kind for number in range(int(many[2]))}
            else:
                scopes[-1][name] = f"{name}#{next(names)}"
                function.registers[scopes[-1][name]] = kind
    elif text.startswith((".local", ".param")):
        one = variable(text)
        scopes[-1][one.name] = f"{one.name}#{next(names)}"
        function.local[scopes[-1][one.name]] = one
    elif text.startswith(SPACES):
        _declare(module, text)
    elif text and not text.startswith("."):
        function.code.append(_instruction(_renamed(text, scopes)))


def _renamed(text: str, scopes: list[dict[str, str]]) -> str:
    for name, unique in {name: unique for scope in scopes for name, unique in scope.items()}.items():
        text = re.sub(rf"(?<![\w%.#$]){re.escape(name)}(?![\w.#$])", unique, text)
    return text


def _instruction(text: str) -> Instruction:
    found = INSTRUCTION.match(text)
    if found is None:
        raise Fault("syntax", f"this is no instruction: {text}")
    negated, guard, opcode, rest = found.groups()
    return Instruction(guard or "", bool(negated), tuple(opcode.split(".")), split(rest), text)
