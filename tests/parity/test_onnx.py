"""The exported graphs, run by onnxruntime and by onnx's reference implementation, against the original model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from onnx.reference import ReferenceEvaluator
from strategies import images_for, laid_out, redrawn, seeds, vits

from tinyvit import ViT, ViTConfig, cli
from tinyvit import functional as F
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.files import create
from tinyvit.functional.patches import as_pair
from tinyvit.interop import Weights, onnx_model
from tinyvit.interop.onnx_export import write_onnx
from tinyvit.models.vit_config import POSITIONS
from tinyvit.training.trained import load_trained

pytestmark = pytest.mark.parity

CHECKPOINT = Path(__file__).parents[2] / "notebooks" / "checkpoint"
SMALL = ViTConfig((8, 15), (4, 3), in_chans=2, num_classes=4, embed_dim=24, depth=2, num_heads=3)
SHAPES = {
    "of_cifar": ViTConfig(),
    "one_patch": ViTConfig(5, 5, in_chans=1, num_classes=2, embed_dim=4, depth=1, num_heads=1),
    "one_class": replace(SMALL, num_classes=1),
    "rectangles": SMALL,
    "one_row": ViTConfig((2, 12), (2, 1), embed_dim=16, depth=3, num_heads=4, mlp_ratio=1.75),
    "no_qkv_bias": replace(SMALL, qkv_bias=False, norm_eps=1e-12),
    "mean_pooling": replace(SMALL, global_pool="avg", norm_eps=1e-3),
    "tanh_gelu": replace(SMALL, activation="gelu_tanh", mlp_ratio=0.5),
    "mlp_head": replace(SMALL, head_hidden=7, global_pool="avg", qkv_bias=False, activation="gelu_tanh"),
    "twelve_layers": ViTConfig(64, 16, num_classes=100, embed_dim=192, depth=12, num_heads=3, mlp_ratio=4.0),
    "no_head": replace(SMALL, num_classes=0),
    "no_head_but_its_hidden_layer": replace(SMALL, num_classes=0, head_hidden=7, global_pool="avg"),
    "dropout": replace(SMALL, drop_rate=0.5, attn_drop_rate=0.5, drop_path_rate=0.5),
}


def weights_of(model):
    config = model.config
    channels, classes = config.in_chans, tuple(f"class {i}" for i in range(config.num_classes))
    mean, std = tuple(0.1 + 0.1 * i for i in range(channels)), tuple(0.2 + 0.1 * i for i in range(channels))
    preprocessing = Preprocessing(classes, channels, as_pair(config.img_size), mean, std, 16.0, "bilinear", 0.875)
    return Weights(config, model.state_dict(), preprocessing)


def session(model):
    """onnxruntime on a CPU, with a `ModelProto` or with a file's path."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])


def assert_agrees(run, model, samples, seed=0):
    """Within 1e-4, and 2e-6 of the sum of absolute terms: a logit whose terms cancel keeps their rounding errors."""
    images = images_for(model, seed, samples).astype("float32")
    expected, cache = model(images)
    (got,) = run(None, {"images": images})
    assert got.dtype == np.float32 and got.shape == expected.shape
    head = getattr(cache.head, "head", cache.head)  # of an MLP head, its last layer's
    added_up = np.abs(expected if head is None else F.linear(np.abs(head.x), np.abs(head.weight))[0])
    np.testing.assert_allclose(got, expected, rtol=0, atol=min(1e-4, 2e-6 * added_up.max()))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_onnxruntime_gives_the_logits_of_the_model_for_batches_of_any_size(shape, positions):
    model = redrawn(ViT(replace(SHAPES[shape], positions=positions), dtype="float64"))
    exported = session(onnx_model(weights_of(model)))
    for samples in (1, 2, 5):
        assert_agrees(exported.run, model, samples, seed=samples)


@given(model=vits(), seed=seeds())
def test_any_vit_passes_the_checker_and_agrees(model, seed):
    exported = onnx_model(weights_of(model))
    onnx.checker.check_model(exported, full_check=True)
    assert_agrees(session(exported).run, model, 2, seed)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_checker_and_the_inference_of_shapes_agree_with_the_configuration(shape, positions):
    config = replace(SHAPES[shape], positions=positions)
    exported = onnx_model(weights_of(ViT(config)))
    onnx.checker.check_model(exported, full_check=True)
    (output,) = exported.graph.output
    output.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(exported, check_type=True, strict_mode=True, data_prop=True).graph
    sides = {value.name: dims(value) for value in (*graph.value_info, *graph.input, *graph.output)}
    (rows, columns), last = config.grid, config.depth - 1
    N, D, H = 1 + rows * columns, config.embed_dim, config.num_heads
    assert sides["images"] == ["batch", config.in_chans, *as_pair(config.img_size)]
    assert output.name == ("logits" if config.num_classes else "features")
    assert sides[output.name][1:] == [config.num_classes or config.head_hidden or D]
    assert sides["tokens.with_cls_token"] == ["batch", N, D]
    assert sides[f"blocks.{last}.attn.probs"][1:] == [H, N, N]
    assert sides[f"blocks.{last}.mlp.act"][1:] == [config.mlp_hidden]
    assert sides["norm.tokens"][1:] == [N, D]


def dims(value):
    """The shape of a value in the graph: numbers, and names of unknown dimensions."""
    return [side.dim_value or side.dim_param for side in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_the_reference_of_onnx_gives_the_logits_of_the_model(positions, activation):
    model = redrawn(ViT(replace(SMALL, positions=positions, activation=activation), dtype="float64"))
    assert_agrees(ReferenceEvaluator(onnx_model(weights_of(model))).run, model, 3)


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_a_model_for_images_of_many_sizes_is_exported_for_the_one_of_its_configuration(pool):
    config = replace(SMALL, dynamic_img_size=True, global_pool=pool)
    model = redrawn(ViT(config, dtype="float64"))
    exported = session(onnx_model(weights_of(model)))
    assert exported.get_inputs()[0].shape == ["batch", 2, 8, 15]
    assert_agrees(exported.run, model, 2)


def test_every_weight_is_there_in_float32_under_its_name_and_in_its_shape():
    for fields in ({}, dict(positions="sincos_2d", head_hidden=5), dict(positions="rope", qkv_bias=False)):
        state = redrawn(ViT(replace(SMALL, **fields), dtype="float64")).state_dict()
        found = initializers(onnx_model(weights_of_state(state, replace(SMALL, **fields))))
        assert state.keys() <= found.keys()
        for name, array in state.items():
            np.testing.assert_array_equal(found[name], array.astype("float32"), strict=True)


def initializers(exported):
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in exported.graph.initializer}


def weights_of_state(state, config=SMALL):
    return weights_of(ViT(config))._replace(state=state)


def test_every_operator_and_value_has_a_name_that_says_where_it_belongs():
    graph = onnx_model(weights_of(ViT(SMALL))).graph
    operators = {node.name: node.op_type for node in graph.node}
    assert len(operators) == len(graph.node)
    assert operators["patch_embed.proj"] == "Conv" and operators["blocks.1.attn.qkv"] == "Gemm"
    assert operators["blocks.0.norm1"] == "LayerNormalization" and operators["blocks.0.attn.probs"] == "Softmax"
    assert operators["blocks.1.mlp.act"] == "Gelu" and operators["head"] == "Gemm"
    assert all(list(node.output) == [node.name] for node in graph.node if node.name != "head")


def test_equal_weights_give_equal_bytes_whatever_their_memory_and_dtype():
    state = redrawn(ViT(SMALL)).state_dict()
    expected = bytes_of(state)
    for layout in ("contiguous", "fortran", "strided", "reversed", "unaligned"):
        same = {name: laid_out(array.copy(), layout) for name, array in state.items()}
        assert bytes_of(same) == expected
    assert bytes_of({name: array.astype("float64") for name, array in state.items()}) == expected
    other = state | {"head.bias": np.nextafter(state["head.bias"], np.float32(1))}
    assert bytes_of(other) != expected


def bytes_of(state):
    return onnx_model(weights_of_state(state)).SerializeToString()


def test_the_preprocessing_comes_back_from_the_metadata():
    weights = weights_of(ViT(SMALL))
    preprocessing = replace(weights.preprocessing, classes=("chat", "été", '"', "\udcff"))
    exported = session(onnx_model(weights._replace(preprocessing=preprocessing)))
    metadata = {name: json.loads(text) for name, text in exported.get_modelmeta().custom_metadata_map.items()}
    assert metadata["classes"] == ["chat", "été", '"', "\udcff"] and metadata["img_size"] == [8, 15]
    assert Preprocessing.from_json(json.dumps(metadata), "the metadata") == preprocessing


def test_the_opset_is_20_and_the_format_no_newer_than_it_needs():
    exported = onnx_model(weights_of(ViT(SMALL)))
    assert [(opset.domain, opset.version) for opset in exported.opset_import] == [("", 20)]
    assert exported.ir_version == 9
    assert exported.doc_string and all(value.doc_string for value in (*exported.graph.input, *exported.graph.output))


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_holds_the_model_and_nothing_else_is_written(tmp_path):
    model = redrawn(ViT(SMALL, dtype="float64"))
    write_onnx(weights_of(model), tmp_path / "vit.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["vit.onnx"]
    assert (tmp_path / "vit.onnx").read_bytes() == onnx_model(weights_of(model)).SerializeToString()
    onnx.checker.check_model(tmp_path / "vit.onnx", full_check=True)
    assert_agrees(session(tmp_path / "vit.onnx").run, model, 5)


def test_weights_too_large_for_one_file_are_beside_it_and_run(tmp_path):
    model = redrawn(ViT(replace(SMALL, embed_dim=48), dtype="float64"))
    write_onnx(weights_of(model), tmp_path / "vit.onnx", one_file=50_000)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"vit.onnx", "vit.onnx.data"} and sizes["vit.onnx.data"] > 3 * sizes["vit.onnx"]
    onnx.checker.check_model(tmp_path / "vit.onnx", full_check=True)
    assert_agrees(session(tmp_path / "vit.onnx").run, model, 5)


def test_both_files_of_large_weights_appear_together(tmp_path):
    model, path = redrawn(ViT(SMALL, dtype="float64")), tmp_path / "vit.onnx"
    with create(path) as place:
        write_onnx(weights_of(model), place, one_file=0)
        assert not path.exists()
    assert {file.name for file in tmp_path.iterdir()} == {"vit.onnx", "vit.onnx.data"}
    assert_agrees(session(path).run, model, 2)


def test_the_command_exports_a_trained_model_whose_logits_are_those_of_tinyvit(tmp_path, capsys):
    path = tmp_path / "digits.onnx"
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["export", str(CHECKPOINT), "--format", "onnx", "--out", str(path)])
    assert str(path) in capsys.readouterr().out
    exported, trained = session(path), load_trained(CHECKPOINT, "cpu")
    metadata = {name: json.loads(text) for name, text in exported.get_modelmeta().custom_metadata_map.items()}
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), "uint8")
    mean, std = (np.reshape(metadata[name], (-1, 1, 1)) for name in ("mean", "std"))
    (logits,) = exported.run(None, {"images": ((pixels / 255 - mean) / std).astype("float32")})
    expected, _ = trained.model(trained.preprocessing(pixels))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert metadata["classes"] == list("0123456789")
