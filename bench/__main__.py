"""`python -m bench COMMAND`: the side-by-side measurements. `python -m bench COMMAND --help` says more of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "bars": ("bench.bars", "the picture of the README: ten networks beside peers, drawn from bench/RESULTS.md"),
        "models": (
            "bench.models.run",
            "whole models beside peers: latency, ratio to the best, error, part of the machine's peak",
        ),
        "kernels": (
            "bench.kernels.run",
            "each kernel of a model beside the peers' layers for the same nodes; ten sample kernels",
        ),
        "search": ("bench.search.run", "the tile search against trying every tile, on ten kernels"),
        "dataset": (
            "bench.dataset.run",
            "kernels of networks under many tiles, each measured twice: how well the cost model chooses and ranks them",
        ),
        "schedule": (
            "bench.schedule.run",
            "every schedule of a model beside its sequential one: predicted, measured, hand-overs, search time",
        ),
        "papers": (
            "bench.papers.run",
            "docs/papers.md: what the works behind Tilewright claim beside what is predicted and measured here",
        ),
        "rewrite": (
            "bench.rewrite.run",
            "kernels per inference beside peers' layers; what each family of rules and step of fusion is worth",
        ),
        "devices": (
            "bench.devices.run",
            "models on several unequal cores: each alone, streamed through both, the bound",
        ),
        "sizes": ("bench.sizes.run", "one program for all sizes of a dimension beside one compiled for each size"),
        "ranges": ("bench.ranges.run", "one artifact for a range of sizes beside one for each size, and ONNX Runtime"),
        "speech": (
            "bench.speech.run",
            "voices and detectors of speech at 1, 3 and 12 seconds of sound from one artifact, beside ONNX Runtime",
        ),
        "real": (
            "bench.real.run",
            "any folder of ONNX files: compiled with their dimensions left open, run beside ONNX Runtime",
        ),
        "sparse": (
            "bench.sparse.run",
            "ResNet-18's layers with pruned weights, zeros left out, beside their dense forms and ONNX Runtime",
        ),
        "codebook": (
            "bench.codebook.run",
            "products of few rows by weights of few values, looked up, beside their dense forms and peers",
        ),
        "loops": ("bench.loops.run", "decoders of 448 steps as one Loop beside ONNX Runtime, one thread"),
        "generate": (
            "bench.generate.run",
            "decoders that generate text beside runtimes made for it: tokens a second, first token, memory, exactness",
        ),
        "trees": (
            "bench.trees.run",
            "ensembles of decision trees beside ONNX Runtime, one thread, 1 and 1,000 samples",
        ),
        "web": ("bench.web.run", "networks in Node.js on one thread beside onnxruntime-web, as browsers run them"),
        "quantize": (
            "bench.quantize.run",
            "models quantised: signal to noise by method, decisions as in fp32, int8 beside fp32 and ONNX Runtime",
        ),
        "compress": (
            "bench.compress.run",
            "networks compressed within errors: what is saved, predicted and taken time beside their dense forms",
        ),
        "edge": (
            "bench.edge.run",
            "models legalised for accelerators with few operators: share there, errors, times by the profiles' formula",
        ),
        "foreign": (
            "bench.foreign",
            "packages of others that use ONNX Runtime, unchanged, on a session of ours: what they say, and times",
        ),
        "serve": (
            "bench.serve",
            "a model behind HTTP at several numbers of callers, beside ONNX Runtime behind the same server",
        ),
        "many": (
            "bench.many.run",
            "sixteen models in one process beside ONNX Runtime: in turn, called at once, memory, a call's overhead",
        ),
        "profiles": (
            "bench.profiles",
            "one artifact for all of x86-64 beside those for each profile, and ONNX Runtime",
        ),
        "texts": (
            "bench.texts.run",
            "an encoder on texts of unequal lengths beside ONNX Runtime and OpenVINO with padding",
        ),
        "race": ("bench.race.run", "time one artifact beside peers that run the model it was compiled from"),
        "replay": (
            "bench.replay.run",
            "the same models compiled at a commit and by the working tree: sources, plans and bytes that differ",
        ),
        "conformance": (
            "bench.conformance.run",
            "ONNX's conformance suite, each case compiled and run: passed, refused, wrong and crashed per operator",
        ),
        "demo": (
            "bench.demo.run",
            "compile models over HTTP on a server of its own, and time the artifacts beside ONNX Runtime",
        ),
        "service": (
            "bench.service.run",
            "what the service bears: states read per second, event streams, transfers, preflights",
        ),
        "scale": ("bench.scale.run", "the service with a thousand workers, simulated from what its steps cost"),
        "arm": ("bench.arm.run", "inner loops of kernels for ARM CPUs: instructions, and cycles beside a core's peak"),
        "gpu": (
            "bench.gpu.check",
            "what needs a GPU: kernels beside the double, tuning records, networks beside PyTorch and XLA",
        ),
    }
)
"""The module whose `main` carries a command out, imported only then: a GPU machine has not what the others need."""


def main(arguments: list[str]) -> int:
    """Exit status of the command; 2 when there is none of that name."""
    name, *rest = arguments or ["--help"]
    if name in COMMANDS:
        return int(import_module(COMMANDS[name][0]).main(rest))
    print(f"{__doc__}\n", *(f"  {known:8} {about}" for known, (_, about) in COMMANDS.items()), sep="\n")
    return 0 if name in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
