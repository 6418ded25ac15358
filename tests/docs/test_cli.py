from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest

import tilewright
from tests.docs.pages import DOCS, PAGES, blocks, commands, first_cells
from tilewright import cli, http, profiles, uploads
from tilewright.cli.commands import tree
from tilewright.client import Client
from tilewright.errors import ClientError

PAGE = (DOCS / "cli.md").read_text()
TREE = tree()
EXAMPLES = [
    words[1:]
    for page in PAGES
    for words in commands(page.read_text())
    if words[0].endswith("tilewright") and len(words) > 1
]


def statuses(text: str) -> set[int]:
    """What stands before a semicolon-parted explanation, as in `0 done; 1 ...`."""
    return {int(number) for number in re.findall(r"(?:: |; )(\d+) ", " ".join(text.split()))}


def errors(kind: type[ClientError]) -> set[int]:
    return {kind.exit_status}.union(*map(errors, kind.__subclasses__()))


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that a line calls, and its other words."""
    rest = list(words)
    if rest[0].startswith("--"):
        rest = rest[2:]
    command = TREE[rest.pop(0)]
    while hasattr(command, "commands") and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    return command, rest


def test_every_command_has_a_row_and_no_other_has() -> None:
    assert sorted(cell for cell in first_cells(PAGE) if cell.isalpha()) == sorted(TREE)


@pytest.mark.parametrize("name", [name for name, one in TREE.items() if hasattr(one, "commands")])
def test_every_command_of_a_group_is_named(name: str) -> None:
    for other in TREE[name].commands:
        assert f"`{name} {other}`" in PAGE


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_an_example_names_a_command_and_options_that_it_has(words: list[str]) -> None:
    command, rest = resolved(words)
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    assert {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= known | {"--help"}


def test_the_exit_statuses_are_those_of_the_errors_wherever_they_are_listed() -> None:
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert listed == errors(ClientError) | {0, 130}
    assert statuses(cli.__doc__ or "") == listed
    assert statuses(cli.app.info.epilog or "") == listed


def test_the_python_example_calls_what_the_client_has() -> None:
    (example,) = blocks(PAGE, "python")
    calls = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Call)]
    used = {
        node.func.attr: {word.arg for word in node.keywords}
        for node in calls
        if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "client"
    }
    assert set(used) == {
        "preflight",
        "compile",
        "benchmark",
        "wait",
        "download",
        "infer",
        "quantize",
        "download_quantized",
        "tuning_records",
    }
    for name in used:
        assert inspect.isfunction(getattr(Client, name))


def test_the_stated_facts_are_those_of_the_code() -> None:
    assert f"Above {uploads.RESUMABLE_FROM >> 20} MiB it goes in pieces of {uploads.PIECE >> 20} MiB" in PAGE
    stated = re.search(r"answers ([\d, ]+) or\s+(\d+)", PAGE)
    assert stated
    assert {int(number) for number in [*stated[1].split(","), stated[2]]} == http.BUSY
    for name in tilewright.__all__:
        if isinstance(kind := getattr(tilewright, name), type) and issubclass(kind, ClientError):
            assert f"`{name}`" in PAGE


def test_the_example_of_a_profile_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (text,) = blocks(PAGE, "toml")
    (tmp_path / "config.toml").write_text(text)
    monkeypatch.setenv("TILEWRIGHT_CONFIG", str(tmp_path / "config.toml"))
    found = profiles.load()
    assert found.get(found.used).url == "https://tilewright.example.org"
    assert found.to_toml().strip() == text.strip()
