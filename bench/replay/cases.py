"""Which models are compiled for what: a case is one model, one target, one precision, one set of options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.public import PUBLIC
from bench.zoo import ZOO

V4, V3, BF16 = "cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v4-bf16"
CUDA = ("cuda:sm_80", "cuda:sm_86", "cuda:rtx3090", "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120")

TINY = tuple(entry.name for entry in ZOO if entry.name.startswith("tiny_"))
TINY_CONVOLUTIONS = ("tiny_cnn", "tiny_mobile")
REAL = tuple(entry.name for entry in ZOO if not entry.name.startswith("tiny_"))
OF_PACKAGES = tuple(model.name for model in PUBLIC)


@dataclass(frozen=True)
class Case:
    """One compilation. With `tuned` the records measured for the model are given, else none."""

    model: str
    target: str
    precision: str = "fp32"
    options: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = False

    def __str__(self) -> str:
        """`tiny_cnn cpu:x86-64-v4 fp32 threads=2 tuned`: what `--only` looks into."""
        options = (f"{name}={value}" for name, value in self.options.items())
        return " ".join([self.model, self.target, self.precision, *options, *(["tuned"] if self.tuned else [])])


def on_cpu(models: Iterable[str], target: str, precision: str = "fp32", **options: Any) -> Iterator[Case]:
    """Cases for the lanes of a CPU, by the model's favourites alone."""
    return (Case(model, target, precision, options) for model in models)


def on_cuda(models: Iterable[str], target: str, *precisions: str, **options: Any) -> Iterator[Case]:
    """Cases for a GPU, in each of the precisions."""
    return (Case(model, target, precision, options) for model in models for precision in precisions)


def tuned(models: Iterable[str]) -> Iterator[Case]:
    """Cases for two lanes whose menus hold what was measured."""
    return (Case(model, V4, "fp32", {"threads": 2}, tuned=True) for model in models)


def quick() -> Iterator[Case]:
    """Every tiny network, four of the literature, three of packages."""
    real, packaged = ("squeezenet1_1", "mobilenet_v2", "resnet18", "vit_tiny"), ("mnist_conv", "micro_kws_qdq", "gtcrn")
    yield from tuned((*TINY, *real))
    yield from on_cpu((*TINY, *packaged), V3, threads=1)
    yield from on_cpu(TINY, BF16, "bf16", threads=2, scheduler="early_start")
    yield from on_cpu(("tiny_inception", "tiny_transformer"), V4, threads=2, scheduler="stages")
    yield from on_cpu(("tiny_inception", "tiny_transformer"), V4, threads=2, scheduler="aligned")
    yield from on_cuda(TINY, "cuda:sm_80", "tf32")
    yield from on_cuda(TINY, "cuda:sm_86", "fp32")
    yield from on_cuda((*TINY, *real), "cuda:sm_90", "fp16")
    yield from on_cuda(("tiny_transformer", "tiny_lstm"), "cuda:sm_90", "bf16")
    yield from on_cuda(("tiny_inception", "tiny_llama"), "cuda:sm_90", "fp16", scheduler="stages")
    yield from on_cuda(packaged, "cuda:sm_80", "fp32")


def full() -> Iterator[Case]:
    """The whole zoo, the public set, every CUDA profile; the quick set is a part of it."""
    yield from quick()
    models = (*TINY, *REAL, *OF_PACKAGES)
    yield from tuned(models)
    yield from on_cpu(models, V3, threads=1)
    yield from on_cpu((*TINY, *REAL), BF16, "bf16", threads=2, scheduler="early_start")
    yield from on_cpu(TINY_CONVOLUTIONS, V3, "int8", threads=1)
    yield from on_cpu(TINY, BF16, "auto", threads=1)
    yield from on_cpu(TINY_CONVOLUTIONS, "wasm:simd128")
    for scheduler in ("sequential", "stages", "aligned", "early_start"):
        yield from on_cpu(TINY, V4, threads=2, scheduler=scheduler)
    branching = ("squeezenet1_0", "inception_v3", "nasnet_a_mobile", "randwire_small", "ensemble")
    for scheduler in ("stages", "aligned", "early_start"):
        yield from on_cpu(branching, V4, threads=2, scheduler=scheduler)
    for target in CUDA:
        yield from on_cuda(TINY, target, "fp32", "tf32", "fp16", "bf16")
        yield from on_cuda(TINY_CONVOLUTIONS, target, "int8")
    yield from on_cuda(TINY, "cuda:sm_90", "auto")
    for scheduler in ("sequential", "stages", "early_start", "persistent"):
        yield from on_cuda(TINY, "cuda:sm_90", "fp16", scheduler=scheduler)
    yield from on_cuda(REAL, "cuda:sm_80", "tf32")
    yield from on_cuda(REAL, "cuda:sm_86", "fp32")
    yield from on_cuda(REAL, "cuda:sm_90", "fp16", "bf16")
    yield from on_cuda(OF_PACKAGES, "cuda:sm_90", "fp32", "fp16")
    yield from on_cuda(OF_PACKAGES, "cuda:sm_80", "fp32")
    yield from of_every_algorithm()


DRAWN = "drawn-"
"""What the names of models begin with that `bench.drawn.layers` draws."""
OF_EVERY_ALGORITHM: tuple[tuple[str, str, str], ...] = (
    ("attention-0", "cpu:aarch64", "fp32"),
    ("attention-0", "cpu:aarch64-bf16", "bf16"),
    ("attention-0", "cuda:sm_90", "bf16"),
    ("attention-2", "cpu:x86-64-v4-amx", "bf16"),
    ("big_recurrent-0", "cpu:x86-64-v3", "fp32"),
    ("byte_attention-0", "cpu:x86-64-v4-bf16", "bf16"),
    ("coded_recurrent-0", "cpu:x86-64-v3", "fp32"),
    ("decoded-0", "cpu:x86-64-v4", "fp32"),
    ("encoder-0", "cuda:sm_90", "bf16"),
    ("encoder-5", "cuda:sm_86", "fp32"),
    ("first_convolution-10", "cuda:sm_90", "bf16"),
    ("grouped-0", "cpu:x86-64-v4-bf16", "bf16"),
    ("large_bytes-0", "cpu:x86-64-v4-amx", "fp32"),
    ("large_bytes-0", "cuda:sm_86", "fp32"),
    ("large_bytes-0", "cuda:sm_90", "fp16"),
    ("large_clustered-0", "cpu:aarch64", "fp32"),
    ("large_clustered-0", "cpu:x86-64-v4-vnni", "fp32"),
    ("large_product-0", "cpu:x86-64-v4-amx", "bf16"),
    ("large_product-0", "cuda:sm_80", "fp32"),
    ("large_product-0", "cuda:sm_90", "fp16"),
    ("large_pruned_bytes-0", "cpu:x86-64-v4-bf16", "fp32"),
    ("large_pruned_row-0", "cpu:x86-64-v2", "fp32"),
    ("large_pruned_row-0", "cpu:x86-64-v4-amx", "bf16"),
    ("large_pruned_row-0", "cpu:x86-64-v4-amx", "fp32"),
    ("large_separable-0", "cuda:sm_80", "fp16"),
    ("large_two_of_four-0", "cpu:aarch64", "fp32"),
    ("large_two_of_four-0", "cpu:x86-64-v4-bf16", "bf16"),
    ("large_two_of_four-0", "cuda:sm_90", "fp16"),
    ("large_quantised-0", "cuda:sm_80", "tf32"),
    ("large_quantised-0", "cuda:sm_90", "fp16"),
    ("large_two_of_four_bytes-0", "cpu:x86-64-v4-vnni", "fp32"),
    ("large_two_of_four_bytes-0", "cuda:sm_86", "fp32"),
    ("large_two_of_four_bytes-0", "cuda:sm_90", "fp16"),
    ("large_vectors-0", "cuda:sm_80", "fp32"),
    ("large_vectors-0", "cuda:sm_80", "tf32"),
    ("large_vectors-0", "cuda:sm_86", "fp32"),
    ("looped-0", "cpu:x86-64-v3", "fp32"),
    ("looped-0", "cuda:sm_90", "bf16"),
    ("low_rank-0", "cpu:x86-64-v2", "fp32"),
    ("network-0", "cpu:aarch64", "fp32"),
    ("network-0", "cpu:x86-64-v4-amx", "bf16"),
    ("network-0", "cpu:x86-64-v4-bf16", "bf16"),
    ("network-0", "cuda:sm_90", "fp16"),
    ("network_of_bytes-0", "cpu:aarch64-dotprod", "fp32"),
    ("network_of_bytes-0", "cpu:x86-64-v4-amx", "fp32"),
    ("network_of_few_channels-0", "cuda:sm_86", "fp32"),
    ("network_of_few_channels-0", "cuda:sm_90", "fp16"),
    ("network_with_zeros-0", "cuda:sm_80", "fp16"),
    ("normalised-1", "cuda:sm_80", "tf32"),
    ("normalised-1", "cuda:sm_90", "fp32"),
    ("ordered-0", "cuda:sm_90", "fp16"),
    ("pruned_byte_convolution-0", "cpu:x86-64-v4", "fp32"),
    ("pruned_byte_convolution-0", "cpu:x86-64-v4-amx", "fp32"),
    ("pruned_byte_convolution-0", "cuda:sm_80", "tf32"),
    ("pruned_few_rows-0", "cpu:x86-64-v3", "fp32"),
    ("pruned_few_rows-2", "cpu:x86-64-v4-amx", "bf16"),
    ("quantised_product-0", "cpu:x86-64-v3", "fp32"),
    ("quantised_product-0", "cuda:sm_80", "fp32"),
    ("quantised_product-1", "cpu:aarch64-dotprod", "fp32"),
    ("quantised_product-1", "cuda:sm_90", "fp16"),
    ("quantised_product-2", "cpu:x86-64-v4-vnni", "fp32"),
    ("recurrent-0", "cpu:x86-64-v4-amx", "bf16"),
    ("recurrent-0", "cuda:sm_90", "fp16"),
    ("recurrent-1", "cpu:x86-64-v3", "fp32"),
    ("recurrent-5", "cpu:x86-64-v4-amx", "fp32"),
    ("selected-0", "cpu:x86-64-v4-vnni", "fp32"),
    ("selected-0", "cuda:sm_86", "fp32"),
)
"""Models and targets for which the model of costs takes each algorithm somewhere."""


def of_every_algorithm() -> Iterator[Case]:
    """Cases for targets of all kinds, with models that are pruned, clustered, of low rank or in bytes."""
    for model, target, precision in OF_EVERY_ALGORITHM:
        options = {"threads": 1} if target.startswith("cpu") else {}
        yield Case(f"{DRAWN}{model}", target, precision, options)
    yield Case(f"{DRAWN}quantised_product-5", "cpu:x86-64-v4-vnni", "fp32", {"threads": 1, "tolerance": 1e-3})


SETS = {"quick": quick, "full": full}


def cases_of(name: str, only: Iterable[str] = ()) -> list[Case]:
    """The cases of a set, each once; with `only` those whose text holds every one of these words."""
    words = tuple(only)
    found = {key_of(case): case for case in SETS[name]() if all(word in str(case) for word in words)}
    return list(found.values())


def key_of(case: Case) -> str:
    """A text that is equal for equal cases."""
    return json.dumps([case.model, case.target, case.precision, dict(case.options), case.tuned], sort_keys=True)
