"""Published times of networks on a board's devices, and a formula fitted to them. Nothing is run.

Coral's performance benchmarks: milliseconds of an inference of int8 networks on four Cortex-A53 of 1.5 GHz, and on an
Edge TPU behind USB 3. Of the networks there these have builders here; the others (residual networks of version 2,
Inception v4, detectors, EfficientNet for the Edge TPU) are not built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.densenet import densenet121
from bench.zoo.mobilenet import mobilenet_v2
from bench.zoo.resnet import resnet50
from bench.zoo.squeezenet import squeezenet1_0
from compiler.contract import CompileOptions
from compiler.legalise import open_profile
from compiler.platforms.fit import Fit, Measured, fit, parts_of
from compiler.platforms.predict import load_graph

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"arm": ("macs", "depthwise", "elements"), "tpu": ("operator", "elements", "streamed")}
)
"""By device the constants that are fitted."""
TPU_MACS = 2e12
"""Per second: the published peak, half of 4 TOPS."""


@dataclass(frozen=True)
class Row:
    """A network and its published milliseconds."""

    name: str
    build: Callable[[GraphBuilder], None]
    arm_ms: float
    tpu_ms: float


def vgg(g: GraphBuilder, thirds: int) -> None:
    """VGG-16 with three convolutions in the last three stages, VGG-19 with four (arXiv 1409.1556, Table 1)."""
    x = g.input("image", (1, 3, 224, 224))
    for channels, count in ((64, 2), (128, 2), (256, thirds), (512, thirds), (512, thirds)):
        for _ in range(count):
            x = g.relu(g.conv(x, channels, 3, bias=True))
        x = g.max_pool(x, 2, 2)
    x = g.flatten(x)
    for features in (4096, 4096):
        x = g.relu(g.gemm(x, features))
    g.output("logits", g.gemm(x, 1000))


def mobilenet_v1(g: GraphBuilder) -> None:
    """Width 1.0 (arXiv 1704.04861, Table 1)."""
    x = g.relu6(g.bn(g.conv(g.input("image", (1, 3, 224, 224)), 32, 3, 2)))
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    for channels, stride in blocks:
        x = g.relu6(g.bn(g.conv(x, x.channels, 3, stride, groups=x.channels)))
        x = g.relu6(g.bn(g.conv(x, channels, 1)))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def inception_v1(g: GraphBuilder) -> None:
    """GoogLeNet without its auxiliary classifiers (arXiv 1409.4842, Table 1)."""
    x = g.relu(g.conv(g.input("image", (1, 3, 224, 224)), 64, 7, 2, bias=True))
    x = g.relu(g.conv(g.max_pool(x, 3, 2, pad=1), 64, 1, bias=True))
    x = g.max_pool(g.relu(g.conv(x, 192, 3, bias=True)), 3, 2, pad=1)
    for block in ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)):
        x = _inception(g, x, block)
    x = g.max_pool(x, 3, 2, pad=1)
    for block in (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ):
        x = _inception(g, x, block)
    x = g.max_pool(x, 3, 2, pad=1)
    for block in ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)):
        x = _inception(g, x, block)
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def _inception(g: GraphBuilder, x: Value, widths: tuple[int, ...]) -> Value:
    one, reduced3, three, reduced5, five, pooled = widths
    branches = (
        g.relu(g.conv(x, one, 1, bias=True)),
        g.relu(g.conv(g.relu(g.conv(x, reduced3, 1, bias=True)), three, 3, bias=True)),
        g.relu(g.conv(g.relu(g.conv(x, reduced5, 1, bias=True)), five, 5, bias=True)),
        g.relu(g.conv(g.max_pool(x, 3, 1, pad=1), pooled, 1, bias=True)),
    )
    return g.concat([*branches])


CORAL: tuple[Row, ...] = (
    Row("SqueezeNet", lambda g: squeezenet1_0(g, bypass=False), 232, 2.1),
    Row("MobileNet v1", mobilenet_v1, 164, 2.4),
    Row("MobileNet v2", mobilenet_v2, 122, 2.6),
    Row("Inception v1", inception_v1, 392, 3.4),
    Row("DenseNet-121", densenet121, 1032, 20),
    Row("ResNet-50, 299", lambda g: resnet50(g, size=299), 1763, 49),
    Row("VGG-16", lambda g: vgg(g, 3), 4595, 296),
    Row("VGG-19", lambda g: vgg(g, 4), 5538, 308),
)


def fitted(rows: tuple[Row, ...] = CORAL) -> dict[str, Fit]:
    """By device the formula's constants, fitted to all rows, and what each row is predicted by the others."""
    times: dict[str, list[Measured]] = {device: [] for device in PARTS}
    cost = open_profile("edgetpu").cost
    for row in rows:
        g = GraphBuilder(row.name)
        row.build(g)
        graph = load_graph(g.finish().SerializeToString(), CompileOptions())
        parts = parts_of(graph, cost.memory)
        sent, received = (sum(graph.type(id).elements for id in ids) for ids in (graph.inputs, graph.outputs))
        known = (
            cost.call + sent / cost.sent + received / cost.received + (parts["macs"] + parts["depthwise"]) / TPU_MACS
        )
        times["arm"].append(Measured(row.name, parts, row.arm_ms / 1e3))
        times["tpu"].append(Measured(row.name, parts, row.tpu_ms / 1e3, known))
    return {device: fit(times[device], PARTS[device]) for device in PARTS}


def row_ms(row: Row, device: str) -> float:
    """The published milliseconds of one of the devices."""
    return row.arm_ms if device == "arm" else row.tpu_ms


def table(rows: tuple[Row, ...], found: Mapping[str, Fit]) -> str:
    """The constants, and for each network predicted over published: fitted, and in brackets left out of the fit."""
    lines = [
        f"{device}: " + ", ".join(f"{part} {value:.3g}" for part, value in one.constants.items())
        for device, one in found.items()
    ]
    lines += ["", "| network | " + " | ".join(f"{device} ms published | predicted" for device in found) + " |"]
    lines.append("|" + "---|" * (1 + 2 * len(found)))
    for row in rows:
        cells = [row.name]
        for device, one in found.items():
            cells += [f"{row_ms(row, device):g}", f"{one.errors[row.name]:+.0%} ({one.left_out[row.name]:+.0%})"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
