"""The OpenAPI document as a page for people: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
  :root { color-scheme: light dark; }
  summary { cursor: pointer; padding: .25rem 0; }
  details { border-bottom: 1px solid #8884; }
  details > *:not(summary) { margin-left: 1rem; }
  table { border-collapse: collapse; }
  th, td { text-align: left; vertical-align: top; padding: .2rem .75rem .2rem 0; }
  code, pre { font-size: 13px; }
  pre { overflow: auto; max-height: 24rem; padding: .5rem; border: 1px solid #8884; }
  .method { display: inline-block; min-width: 4.5rem; font-weight: bold; }
</style>"""

Node = Mapping[str, Any]


def render(document: Node) -> str:
    """The page. Every text of the document is escaped."""
    return "\n".join(_page(document))


def _page(document: Node) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])}: API</title>\n{STYLE}"
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>\n{_paragraphs(info.get('description', ''))}"
    yield '<p>As a document: <a href="/openapi.json">/openapi.json</a>, OpenAPI. Operations with a key want it as '
    yield "<code>Authorization: Bearer &lt;key&gt;</code>.</p>"
    for tag, operations in _by_tag(document).items():
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, operation in operations:
            yield from _operation(document, method, path, operation)
    yield "<h2>Schemas</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        shown = escape(name)
        yield f'<details id="schema-{shown}"><summary><code>{shown}</code></summary>{_plain(schema)}</details>'
    yield "</html>"


def _by_tag(document: Node) -> dict[str, list[tuple[str, str, Node]]]:
    found: dict[str, list[tuple[str, str, Node]]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            tag = next(iter(operation.get("tags", ())), "other")
            found.setdefault(tag, []).append((method, path, operation))
    return found


def _operation(document: Node, method: str, path: str, operation: Node) -> Iterator[str]:
    yield f'<details id="{escape(operation["operationId"])}"><summary>'
    yield f'<span class="method">{escape(method.upper())}</span>'
    yield f"<code>{escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
    yield _paragraphs(operation.get("description", ""))
    yield f"<p>{'With an API key.' if operation.get('security') else 'Without a key.'}</p>"
    if parameters := operation.get("parameters"):
        rows = "".join(_parameter(one) for one in parameters)
        yield f"<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>{rows}</table>"
    if body := operation.get("requestBody"):
        yield f"<h4>Body</h4>{_contents(body)}"
    for status, response in operation.get("responses", {}).items():
        said = escape(response.get("description", ""))
        yield f"<details><summary>{escape(status)} {said}</summary>{_contents(response)}</details>"
    yield "</details>"


def _parameter(given: Node) -> str:
    needed = " (required)" if given.get("required") else ""
    cells = (f"<code>{escape(given['name'])}</code>{needed}", escape(given["in"]), f"<code>{_type(given)}</code>")
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{escape(given.get('description', ''))}</td></tr>"


def _type(given: Node) -> str:
    """A schema in few words; a named one leads to its definition."""
    schema = given.get("schema", {})
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type({"schema": one}) for one in options)
    if "enum" in schema:
        return escape(" or ".join(json.dumps(one) for one in schema["enum"]))
    kind = str(schema.get("type", "any"))
    return f"list of {_type({'schema': schema.get('items', {})})}" if kind == "array" else escape(kind)


def _contents(body: Node) -> str:
    return "".join(
        f"<p><code>{escape(media)}</code>: <code>{_type(content)}</code></p>{_example(content)}"
        for media, content in body.get("content", {}).items()
    )


def _example(content: Node) -> str:
    found = [content["example"]] if "example" in content else []
    found += [one["value"] for one in content.get("examples", {}).values()]
    return "".join(map(_plain, found))


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
