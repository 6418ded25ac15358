"""The report's section on a model that was quantised before it was compiled: its layers, and what that cost."""

from __future__ import annotations

from compiler.contract import QuantisedLayer
from compiler.pack.chart.wording import escaped, plural
from compiler.pack.elements import section, table
from compiler.pack.facts import QuantisedModel

HEAD = (
    ("layer", ""),
    ("operator", ""),
    ("weights", ""),
    ("precision", ""),
    ("weights, dB", "n"),
    ("alone, dB", "n"),
    ("why not int8", ""),
)
OUTPUTS = (("output", ""), ("signal to noise", "n"), ("largest error, of the largest value", "n"))


def quantised_section(quantised: QuantisedModel | None) -> str:
    """Each output and layer; nothing where the model was compiled as it was given."""
    if quantised is None:
        return ""
    report = quantised.report
    outputs = [
        (
            f"<code>{escaped(one.name)}</code>",
            "no difference" if one.snr_db is None else f"{one.snr_db:.1f} dB",
            "not finite" if one.max_relative is None else f"{one.max_relative:.2g}",
        )
        for one in report.outputs
    ]
    demanded = "" if report.snr_db is None else f", of which {report.snr_db:g} dB were demanded"
    words = (
        f"Quantised on {plural(report.count, 'sample')} before it was compiled; outputs against the model as it was "
        f"given, in float64{demanded}. The quantised model lies in the artifact, which was proved against it."
    )
    return section("int8", words, table(OUTPUTS, outputs) + "\n" + table(HEAD, list(map(_row, report.layers))))


def _row(layer: QuantisedLayer) -> tuple[str, ...]:
    shape = "data" if layer.weights is None else "x".join(map(str, layer.weights))
    decibels = ("" if db is None else f"{db:.1f}" for db in (layer.weights_db, layer.outputs_db))
    named = f"<code>{escaped(layer.node)}</code>"
    return named, escaped(layer.operator), shape, layer.precision, *decibels, escaped(layer.reason or "")
