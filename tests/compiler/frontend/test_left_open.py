from __future__ import annotations

import onnx
import pytest

from compiler.contract import CompileOptions, DimRange
from compiler.frontend import bind_what_is_open, load
from compiler.ops import OPERATORS
from tests.compiler.frontend.open.at_sizes import model_of

IMAGES = model_of("m (float[batch,3,height,width] x) => (float[batch,3,a,b] y) { y = MaxPool<kernel_shape=[5,5]>(x) }")


def test_what_is_left_open_gets_a_range_from_the_least_size_that_the_model_takes() -> None:
    options, notices = bind_what_is_open(IMAGES, CompileOptions(), OPERATORS)
    each = DimRange(8, 224, 640)
    assert options.dims == {"height": each, "width": each}
    assert "'height' 8..640, tuned for 224" in notices[0]
    assert "batch" not in notices[0]


def test_what_is_bound_stays_as_it_is() -> None:
    options, _ = bind_what_is_open(IMAGES, CompileOptions(dims={"height": 32}), OPERATORS)
    assert options.dims == {"height": 32, "width": DimRange(8, 224, 640)}
    whole = CompileOptions.from_json({"inputs": {"x": [1, 3, 32, 40]}})
    assert bind_what_is_open(IMAGES, whole, OPERATORS) == (whole, ())
    several = CompileOptions.from_json({"dims": {"height": [32, 64], "width": 64}})
    assert bind_what_is_open(IMAGES, several, OPERATORS) == (several, ())


@pytest.mark.parametrize(
    ("shape", "name", "wanted"),
    [
        ("1,tokens", "tokens", DimRange(1, 128, 512)),
        ("n", "n", DimRange(1, 64, 64)),
        ("1,samples", "samples", DimRange(1, 16000, 48000)),
        ("1,3,48,width", "width", DimRange(1, 48, 640)),
        ("1,4,points", "points", DimRange(1, 1024, 16384)),
    ],
)
def test_the_range_is_a_usual_one(shape: str, name: str, wanted: DimRange) -> None:
    model = model_of(f"m (float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}")
    assert bind_what_is_open(model, CompileOptions(), OPERATORS)[0].dims == {name: wanted}


def test_a_dimension_without_a_name_is_called_by_its_place() -> None:
    proto = onnx.load_from_string(model_of("m (float[1,n] x) => (float[1,n] y) { y = Relu(x) }"))
    proto.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    options, _ = bind_what_is_open(proto.SerializeToString(), CompileOptions(), OPERATORS)
    assert options.dims == {"x.1": DimRange(1, 128, 512)}
    shapes = load(proto.SerializeToString(), options.bindings[-1], OPERATORS).open_shapes
    assert shapes is not None
    (open_one,) = shapes.dimensions
    assert (open_one.name, open_one.high) == ("x.1", 512)


def test_sizes_that_no_filter_fits_grow_until_all_do() -> None:
    taps = ", ".join(["1"] * 300)
    model = model_of(
        f"m (float[batch,tokens] x) => (float[batch,frames] y) <float[1,1,300] w = {{{taps}}}, int64[1] one = {{1}}>"
        " { a = Unsqueeze(x, one) b = Conv(a, w) y = Squeeze(b, one) }"
    )
    options, (notice,) = bind_what_is_open(model, CompileOptions(), OPERATORS)
    assert options.dims == {"tokens": DimRange(512, 512, 2048)}
    assert "'tokens' 512..2048, tuned for 512" in notice


def test_a_side_of_images_that_must_be_one_number_is_found() -> None:
    model = model_of(
        "m (float[n,3,high,width] x) => (float[n,a,width] y) <int64[3] shape = {0, 144, -1}> { y = Reshape(x, shape) }"
    )
    options, (ranges, side) = bind_what_is_open(model, CompileOptions(dims={"n": 1}), OPERATORS)
    assert options.dims == {"n": 1, "high": 48, "width": DimRange(1, 224, 640)}
    assert "'width' 1..640" in ranges
    assert "bound 'high' to 48" in side


def test_the_batch_of_a_recurrent_state_without_a_name_is_one() -> None:
    proto = onnx.load_from_string(
        model_of(
            "m (float[n,4] x, float[2,m,8] state) => (float[n,4] y, float[2,m,8] z) { y = Relu(x) z = Relu(state) }"
        )
    )
    proto.graph.input[1].type.tensor_type.shape.dim[1].Clear()
    proto.graph.output[1].type.tensor_type.shape.dim[1].Clear()
    options, notices = bind_what_is_open(proto.SerializeToString(), CompileOptions(), OPERATORS)
    assert (options.dims, notices) == ({"state.1": 1}, ())


def test_what_has_no_rule_is_bound_to_its_usual_size() -> None:
    model = model_of(
        "m (float[1,4,tokens] x) => (float[1,1,17,9] y) <int64[2] s = {17, 9}, int64[2] k = {2, 2}>"
        " { y = Col2Im(x, s, k) }"
    )
    options, (notice,) = bind_what_is_open(model, CompileOptions(), OPERATORS)
    assert options.dims == {"tokens": 128}
    assert "'tokens' to 128" in notice
    assert "Col2Im" in notice


@pytest.mark.parametrize(
    ("channels", "text", "most"),
    [
        (84, "y = Sigmoid(x)", 16384),
        (84, "t = Transpose<perm=[0,2,1]>(x) y = MatMul(t, x)", 4096),
        (5000, "y = Sigmoid(x)", 4096),
        (5000, "t = Transpose<perm=[0,2,1]>(x) e = Exp(x) y = MatMul(t, e)", 1024),
    ],
)
def test_an_axis_that_counts_something_ends_where_memory_does(channels: int, text: str, most: int) -> None:
    model = model_of(f"m (float[1,{channels},boxes] x) => (float[1,a,b] y) {{ {text} }}")
    options, (notice,) = bind_what_is_open(model, CompileOptions(), OPERATORS)
    assert options.dims == {"boxes": DimRange(1, 1024, most)}
    assert f"'boxes' 1..{most}, tuned for 1024" in notice


def test_a_file_that_cannot_be_read_leaves_the_options_as_they_are() -> None:
    assert bind_what_is_open(b"no model", CompileOptions(), OPERATORS) == (CompileOptions(), ())


def test_options_that_name_nothing_in_the_model_stay_as_they_are() -> None:
    wrong = CompileOptions(dims={"depth": 3})
    assert bind_what_is_open(IMAGES, wrong, OPERATORS) == (wrong, ())


COUNTS = "m (float[nodes,4] x, float[edges,3] e) => (float[nodes,4] y, float[edges,3] z) {{ y = {0}(x) z = {0}(e) }}"


def test_first_dimensions_that_count_what_a_sample_has_are_no_batches() -> None:
    options, (notice,) = bind_what_is_open(model_of(COUNTS.format("Relu")), CompileOptions(), OPERATORS)
    assert options.dims == {"nodes": DimRange(1, 128, 512), "edges": DimRange(1, 128, 512)}
    assert "'nodes' 1..512" in notice


def test_first_dimensions_are_batches_after_all_where_the_model_has_no_rule_for_them() -> None:
    model = model_of(
        "m (float[nodes,1,1] x, float[edges,1,1] e) => (float[nodes] y, float[edges] z) { y = Det(x) z = Det(e) }"
    )
    options, (notice,) = bind_what_is_open(model, CompileOptions(), OPERATORS)
    assert options.dims == {}
    assert "bound to 1" in notice


def test_a_range_is_said_as_the_part_of_it_that_the_model_takes() -> None:
    model = model_of(
        "m (float[1,tokens] x) => (float[1,n] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] most = {100}> "
        "{ table = ConstantOfShape(most) s = Shape(x) k = Gather(s, one) t = Slice(table, zero, k) y = Add(x, t) }"
    )
    options, (notice, *_) = bind_what_is_open(model, CompileOptions(), OPERATORS)
    assert options.dims == {"tokens": DimRange(1, 100, 100)}
    assert "'tokens' 1..100, tuned for 100" in notice
