"""Writes the tables of docs/options.md, docs/quantization.md and docs/compression.md from the schemas of options.

`python -m tests.docs.options_table`, in the repository's root.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, CompressOptions, QuantizeOptions, properties
from tests.docs.pages import DOCS

Options = type[CompileOptions] | type[QuantizeOptions] | type[CompressOptions]
PAGES: Mapping[Path, Options] = {
    DOCS / "options.md": CompileOptions,
    DOCS / "quantization.md": QuantizeOptions,
    DOCS / "compression.md": CompressOptions,
}
BEGIN, END = "<!-- written by python -m tests.docs.options_table -->\n", "<!-- end of what is written -->\n"


def table(options: Options) -> str:
    """A row for each option: name, default, values, what it means."""
    fields = properties(options)
    has_aim = options is not CompressOptions
    stated = options().to_json() if has_aim else {**CompressOptions(sparsity=0.5).to_json(), "sparsity": None}
    rows = [
        f"| `{name}` | `{json.dumps(stated[name])}` | {', '.join(values(schema))} | {schema['description']} |\n"
        for name, schema in fields.items()
    ]
    return "".join(["| field | default | values | meaning |\n|---|---|---|---|\n", *rows])


def values(schema: Mapping[str, Any]) -> Iterator[str]:
    """What a field takes, in words."""
    if "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
        return
    for one in schema.get("anyOf", (schema,)):
        if "enum" in one:
            yield from (f"`{value}`" for value in one["enum"])
        elif "const" in one:
            yield f"`{one['const']}`"
        elif one["type"] == "null":
            yield "`null`"
        elif one["type"] in ("integer", "number"):
            least, above, most = (one.get(bound) for bound in ("minimum", "exclusiveMinimum", "maximum"))
            low = f" from {least:g}" if least is not None else f" above {above:g}" if above is not None else ""
            yield one["type"] + low + (f" to {most:g}" if most is not None else "")
        else:
            yield str(one["type"])


def written(page: str, options: Options) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(options)}{END}{after}"


if __name__ == "__main__":
    for page, options in PAGES.items():
        page.write_text(written(page.read_text(), options))
