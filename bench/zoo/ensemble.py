"""An ensemble: three networks over one image, their class probabilities averaged."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder
from bench.zoo.mobilenet import mobilenet_v2_logits
from bench.zoo.resnet import resnet18_logits
from bench.zoo.squeezenet import squeezenet1_1_logits


def ensemble(g: GraphBuilder, *, size: int = 224) -> None:
    """ResNet-18, SqueezeNet 1.1 and MobileNet V2, independent until the last nodes."""
    image = g.input("image", (1, 3, size, size))
    members = [network(g, image) for network in (resnet18_logits, squeezenet1_1_logits, mobilenet_v2_logits)]
    first, second, third = (g.softmax(logits) for logits in members)
    g.output("probabilities", g.scale(g.add(g.add(first, second), third), 1.0 / 3.0))
