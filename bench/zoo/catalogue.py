"""The list of networks, and `build`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import onnx

from bench.zoo.builder import GraphBuilder
from bench.zoo.captioner import densenet_lstm_captioner
from bench.zoo.convnext import convnext_tiny
from bench.zoo.densenet import densenet121
from bench.zoo.efficientnet import efficientnet_b0
from bench.zoo.ensemble import ensemble
from bench.zoo.inception import inception_v3
from bench.zoo.language import bert_base, gpt2_small
from bench.zoo.mobilenet import mobilenet_v2, mobilenet_v3_large
from bench.zoo.nasnet import nasnet_a_large, nasnet_a_mobile
from bench.zoo.randwire import randwire_large, randwire_small
from bench.zoo.resnet import resnet18, resnet50, resnext50_32x4d
from bench.zoo.shufflenet import shufflenet_v2
from bench.zoo.squeezenet import squeezenet1_0, squeezenet1_1
from bench.zoo.tiny import tiny_cnn, tiny_detector, tiny_inception, tiny_lstm, tiny_mobile, tiny_transformer
from bench.zoo.vit import vit_base, vit_tiny
from bench.zoo.window import DoesNotFit
from bench.zoo.written_out import tiny_llama, tiny_lstm_cells, tiny_unet
from bench.zoo.yolo import yolov3_tiny

Inputs = tuple[tuple[str, tuple[int, ...]], ...]


class NoSuchNetwork(LookupError):
    """The zoo has no network of that name."""


class BadOption(ValueError):
    """A network was given an option that it does not have, or a value that it cannot be built with."""


@dataclass(frozen=True)
class Entry:
    """One network: how to build it, its inputs at the default size, where it comes from, its work (2 per MAC)."""

    name: str
    network: Callable[..., None]
    inputs: Inputs
    paper: str
    gflop: float

    @property
    def options(self) -> dict[str, object]:
        """Size options and their defaults."""
        parameters = inspect.signature(self.network).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _image(size: int) -> Inputs:
    return (("image", (1, 3, size, size)),)


_BERT_INPUTS = (("input_ids", (1, 128)), ("attention_mask", (1, 128)), ("token_type_ids", (1, 128)))
_LLAMA_INPUTS = (
    ("input_ids", (1, 8)),
    ("position_ids", (1, 8)),
    ("attention_mask", (1, 16)),
    *((f"past.{block}.{name}", (1, 2, 8, 8)) for block in range(2) for name in ("key", "value")),
)

ZOO: tuple[Entry, ...] = (
    Entry("squeezenet1_0", squeezenet1_0, _image(224), "arXiv 1602.07360", 2.368),
    Entry("squeezenet1_1", squeezenet1_1, _image(224), "arXiv 1602.07360", 0.6983),
    Entry("inception_v3", inception_v3, _image(299), "arXiv 1512.00567", 11.43),
    Entry("resnet18", resnet18, _image(224), "arXiv 1512.03385", 3.628),
    Entry("resnet50", resnet50, _image(224), "arXiv 1512.03385", 8.178),
    Entry("resnext50_32x4d", resnext50_32x4d, _image(224), "arXiv 1611.05431", 8.461),
    Entry("densenet121", densenet121, _image(224), "arXiv 1608.06993", 5.668),
    Entry("mobilenet_v2", mobilenet_v2, _image(224), "arXiv 1801.04381", 0.6015),
    Entry("mobilenet_v3_large", mobilenet_v3_large, _image(224), "arXiv 1905.02244", 0.4332),
    Entry("efficientnet_b0", efficientnet_b0, _image(224), "arXiv 1905.11946", 0.7716),
    Entry("shufflenet_v2", shufflenet_v2, _image(224), "arXiv 1807.11164", 0.2898),
    Entry("nasnet_a_mobile", nasnet_a_mobile, _image(224), "arXiv 1707.07012", 1.127),
    Entry("nasnet_a_large", nasnet_a_large, _image(331), "arXiv 1707.07012", 47.57),
    Entry("randwire_small", randwire_small, _image(224), "arXiv 1904.01569", 1.153),
    Entry("randwire_large", randwire_large, _image(224), "arXiv 1904.01569", 15.58),
    Entry("vit_tiny", vit_tiny, _image(224), "arXiv 2012.12877", 2.507),
    Entry("vit_base", vit_base, _image(224), "arXiv 2010.11929", 35.13),
    Entry("convnext_tiny", convnext_tiny, _image(224), "arXiv 2201.03545", 8.911),
    Entry("bert_base", bert_base, _BERT_INPUTS, "arXiv 1810.04805", 22.35),
    Entry("gpt2_small", gpt2_small, (("input_ids", (1, 128)),), "Radford et al. 2019", 32.23),
    Entry("densenet_lstm_captioner", densenet_lstm_captioner, _image(224), "arXiv 1411.4555", 6.585),
    Entry("yolov3_tiny", yolov3_tiny, _image(416), "arXiv 1804.02767", 5.565),
    Entry("ensemble", ensemble, _image(224), "its members' papers", 4.928),
    Entry("tiny_cnn", tiny_cnn, _image(32), "", 0.005025),
    Entry("tiny_inception", tiny_inception, _image(33), "", 0.001391),
    Entry("tiny_mobile", tiny_mobile, _image(32), "", 0.001824),
    Entry("tiny_transformer", tiny_transformer, (("input_ids", (1, 16)),), "", 0.0009175),
    Entry("tiny_detector", tiny_detector, _image(32), "", 0.001532),
    Entry("tiny_lstm", tiny_lstm, (("sequence", (6, 1, 16)),), "", 0.0001759),
    Entry("tiny_llama", tiny_llama, _LLAMA_INPUTS, "", 0.0003605),
    Entry("tiny_unet", tiny_unet, (("time", (1, 16)), ("noisy", (1, 3, 16, 16))), "", 0.01083),
    Entry("tiny_lstm_cells", tiny_lstm_cells, (("sequence", (6, 2, 12)),), "", 0.0001668),
)


def entry(name: str) -> Entry:
    """The entry called `name`; NoSuchNetwork lists those that there are."""
    for found in ZOO:
        if found.name == name:
            return found
    raise NoSuchNetwork(f"no network {name!r} in the zoo; there are {', '.join(e.name for e in ZOO)}")


def build(name: str, seed: int = 0, **options: object) -> onnx.ModelProto:
    """The network `name` with weights drawn from `seed`, batch 1, static shapes.

    `options` are the size options of its builder (`python -m bench.zoo --list` shows them). The same arguments give the
    same bytes. Raises NoSuchNetwork and BadOption.
    """
    chosen = entry(name)
    if unknown := sorted(options.keys() - chosen.options.keys()):
        raise BadOption(f"{name} has no option {', '.join(unknown)}; it has {', '.join(chosen.options) or 'none'}")
    for key, value in options.items():
        if type(value) is not type(chosen.options[key]):
            raise BadOption(
                f"{name}: option {key} is {value!r}; give a value like its default, {chosen.options[key]!r}"
            )
    g = GraphBuilder(name, seed)
    try:
        chosen.network(g, **options)
    except DoesNotFit as error:
        raise BadOption(f"{name}: {error}; choose a larger size") from error
    return g.finish()
