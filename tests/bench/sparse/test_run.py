from __future__ import annotations

import onnx
import pytest

from bench.sparse.layers import FORMS, LAYERS, Layer
from bench.sparse.run import Row, main, table


@pytest.mark.parametrize("form", FORMS)
def test_weights_have_the_share_of_zeros_in_the_form_that_was_asked(form: str) -> None:
    weights = LAYERS[0].weights(0.8, form)
    assert (weights == 0).mean() == pytest.approx(0.8, abs=0.02)
    groups = (weights != 0).reshape(-1, FORMS[form], *weights.shape[1:])
    assert (groups.any(1) == groups.all(1)).all()
    assert (LAYERS[0].weights() != 0).all()


@pytest.mark.parametrize("channels_last", [True, False])
def test_every_layer_is_a_model_that_onnx_accepts(channels_last: bool) -> None:
    for layer in LAYERS:
        model = layer.model(2, layer.weights(0.9), channels_last=channels_last)
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    assert len({layer.name for layer in LAYERS}) == len(LAYERS)


def row(share: float, taken: str, ratio: float, form: str = "unstructured") -> Row:
    return Row("3x3 64-64 @56", 1, form, share, taken, "winograd", 1e-3 * ratio, 1e-3, 3e-3, ratio, ratio, ratio, 1e-7)


def test_a_table_says_where_a_dense_kernel_was_taken_and_from_where_on_zeros_are_left_out() -> None:
    rows = [row(0.7, "winograd", 1.01), row(0.8, "sparse", 0.9), row(0.9, "sparse", 0.5), row(0.9, "loops", 1.0, "1x4")]
    *_, first, second = table(rows).splitlines()
    assert first == "| 3x3 64-64 @56 | 1 | 1.000 | winograd | 3.00 | unstructured | 1.01 = | 0.90 | 0.50 | 80% |"
    assert second == "| 3x3 64-64 @56 | 1 | 1.000 | winograd | 3.00 | 1x4 | | | 1.00 = | none |"


def test_layers_and_shares_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, said in ((["5x5"], "no such layer: 5x5"), (["--shares", "1.5"], "no share of zeros")):
        with pytest.raises(SystemExit) as ended:
            main(asked)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert Layer(64, 128, 56, 1, 2).name == "1x1/2 64-128 @56"
