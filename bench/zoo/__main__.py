"""`python -m bench.zoo NAME --out model.onnx` writes one network; `--list` shows them all."""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from bench.zoo import ZOO, BadOption, NoSuchNetwork, build


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for a wrong name or option."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo", description=__doc__)
    parser.add_argument("name", nargs="?", help="a network of --list")
    parser.add_argument("--out", type=Path, help="file to write (default: NAME.onnx)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="show names, GFLOP, inputs and options")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="size option, e.g. seq=32")
    given = parser.parse_args(arguments)
    if given.list:
        _show()
        return 0
    if given.name is None:
        parser.error("name a network, or ask for --list")
    try:
        options = dict(_option(text) for text in given.option)
        model = build(given.name, given.seed, **options)
    except (NoSuchNetwork, BadOption) as error:
        print(error, file=sys.stderr)
        return 2
    out = given.out or Path(f"{given.name}.onnx")
    data = model.SerializeToString(deterministic=True)
    out.write_bytes(data)
    print(f"{out}: {len(data):,} bytes, {len(model.graph.node)} nodes")
    return 0


def _option(text: str) -> tuple[str, int | bool]:
    key, _, value = text.partition("=")
    try:
        parsed = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        parsed = None
    if not isinstance(parsed, int):
        raise BadOption(f"--option {text!r}: write KEY=VALUE with a whole number, True or False as the value")
    return key, parsed


def _show() -> None:
    for e in ZOO:
        inputs = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in e.inputs)
        options = ", ".join(f"{key}={value}" for key, value in e.options.items())
        print(f"{e.name:<24} {e.gflop:8.3f} GFLOP  {inputs}  [{options}]  {e.paper}")


if __name__ == "__main__":
    sys.exit(main())
