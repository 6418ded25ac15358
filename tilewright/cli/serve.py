"""`tilewright serve`."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import Json, console, failures, print_json
from tilewright.errors import UsageError
from tilewright.extras import require

if TYPE_CHECKING:
    from tilewright.serving.served import Served

PORT = 8000
KEY = "TILEWRIGHT_SERVE_KEY"


def serve(
    artifacts: Annotated[list[str], typer.Argument(help="FILE.tw, or NAME=FILE.tw; each is served by its name.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = PORT,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", envvar=KEY, help="Requests have to bear one of these.", show_default=False),
    ] = None,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, help="Lanes that run at a time; default: this process's cores.")
    ] = None,
    lanes: Annotated[
        int | None, typer.Option("--threads", min=1, help="Lanes of a run; default: as it was compiled for.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Runs that may wait for a model; more get 429.")] = 64,
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="MiB of a request; more get 413.")] = 64,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option("--tokenizer", help="NAME=tokenizer.json of a model that takes texts.", show_default=False),
    ] = None,
    pooling: Annotated[
        str, typer.Option("--pooling", help="Of states to one embedding: mean, cls or last.", metavar="HOW")
    ] = "mean",
    batching: Annotated[
        bool, typer.Option("--batching", help="Join requests into runs, of models that take several.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve artifacts over HTTP until Ctrl-C: KServe v2, and texts as OpenAI's API has them."""
    with failures(as_json):
        require("serve", "a model server", replaceable=("jinja2",))
        import uvicorn

        from tilewright.local import own_cores
        from tilewright.serving.app import Serving, names_of
        from tilewright.serving.openai import POOLINGS, Texts
        from tilewright.serving.served import Cores, Served

        if not key and not _is_loopback(host):
            fix = f"give --key KEY (or {KEY}), or listen on 127.0.0.1"
            raise UsageError(f"without a key everybody who reaches {host} may run the models", fix=fix)
        if pooling not in POOLINGS:
            raise UsageError(f"--pooling is {pooling!r}", fix=f"give one of {', '.join(POOLINGS)}")
        files = names_of(artifacts)
        tokenizers = names_of(tokenizer or [])
        if strange := [name for name in tokenizers if name not in files]:
            raise UsageError(f"--tokenizer names {strange[0]!r}", fix=f"name one of {', '.join(files)}")
        texts = {name: Texts.beside(Path(file), pooling) for name, file in tokenizers.items()}
        shared = Cores(cores or own_cores())
        with _listening(host, port) as listening:
            models = {
                name: Served(name, Path(file), shared, lanes, queue, joins=batching) for name, file in files.items()
            }
            serving = Serving(models, key or (), max_body << 20, texts)
            _tell(f"http://{host}:{listening.getsockname()[1]}", models, as_json)
            config = uvicorn.Config(serving.app(), log_level="warning", timeout_graceful_shutdown=30)
            uvicorn.Server(config).run(sockets=[listening])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens there. Raises `UsageError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        fix = "give another --port, or --port 0 for any that is free"
        raise UsageError(f"{host}:{port} cannot be listened on: {error.strerror}", fix=fix) from error
    with made:
        yield made


def _tell(url: str, models: dict[str, Served], as_json: bool) -> None:
    if as_json:
        print_json({"url": url, "models": list(models), "pid": os.getpid()})
        return
    print(f"serving on {url}, until Ctrl-C", flush=True)
    for name, served in models.items():
        target, many = served.model.manifest["target"], served.replicas
        console().print(f"  {name}: {target}, {many} run{'s' if many > 1 else ''} at a time", markup=False)
