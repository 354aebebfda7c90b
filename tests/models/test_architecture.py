import numpy as np
import pytest
from strategies import redrawn
from tiny_architecture import Tiny, TinyConfig

from tinyvit import Context, Key, ViT, ViTConfig, create_model, gradcheck, optim, probe
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.interop.names import state_shapes
from tinyvit.models import BiTConfig, HybridConfig, ResNetConfig, SegmenterConfig, build, config_class, register
from tinyvit.models.registry import architecture_name
from tinyvit.nn import buffer_updates
from tinyvit.probe.explorer import explorer
from tinyvit.training.features import features_by_layer
from tinyvit.training.freezing import freeze_parts, frozen_parts

VIT = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=3, num_heads=2)
CONFIGS = [
    VIT,
    TinyConfig(num_classes=3),
    ResNetConfig(img_size=8, in_chans=1, num_classes=3, depths=(2, 1), width=3),
    BiTConfig(img_size=8, in_chans=1, num_classes=3, depths=(2, 1), width=4, num_groups=2),
    HybridConfig(img_size=8, in_chans=1, num_classes=3, embed_dim=8, depth=3, num_heads=2, backbone_width=3),
    SegmenterConfig("vit", VIT, num_classes=3),
]
configs = pytest.mark.parametrize("config", CONFIGS, ids=architecture_name)


def images(n=2):
    return np.random.default_rng(0).standard_normal((n, 1, 8, 8))


def model_of(config):
    return redrawn(build(config, dtype="float64"))


@configs
def test_gradients_match_the_complex_step(config):
    report = gradcheck.check_model(build(config), images())
    assert report.max_error < 1e-9, report


@configs
def test_the_forward_goes_through_the_parts_one_after_the_other(config):
    model = model_of(config)
    x = images()
    for _, part in model.parts():
        x, _ = part(x)
    np.testing.assert_array_equal(x, model(images())[0])


@configs
def test_parts_cover_all_parameters_and_begin_and_end_around_the_layers(config):
    model = build(config)
    of_parts = [parameter for _, part in model.parts() for parameter in part.parameters()]
    assert set(map(id, of_parts)) == set(map(id, model.parameters())) and len(of_parts) == len(set(map(id, of_parts)))
    assert model.depth == 3 and len(model.parts()) > 1 + model.depth
    assert len({name for name, _ in model.parts()}) == len(model.parts())


@configs
def test_a_new_head_changes_configuration_parameters_and_classes_and_nothing_else(config):
    model = model_of(config)
    model.preprocessing = Preprocessing(tuple("abc"), 1, (8, 8), (0.5,), (0.5,))
    features, (_, head) = model.features(images()), model.parts()[-1]
    model.freeze()
    model.reset_head(5)
    assert {name: array.shape for name, array in model.state_dict().items()} == state_shapes(model.config)
    assert model.config.num_classes == 5 and model.classes == tuple("01234") and model.dtype == "float64"
    np.testing.assert_array_equal(model.features(images()), features)
    new = {name for name, p in model.named_parameters() if p.trainable}
    assert new == {p.name for p in head.parameters()} and model.predict(images()).shape[:2] == (2, 5)


@configs
def test_features_of_a_layer_are_what_its_part_gives_and_by_default_what_the_head_reads(config):
    model = model_of(config)
    x, parts = images(), model.parts()
    outputs = []
    for _, part in parts:
        x, _ = part(x)
        outputs.append(x)
    for layer in range(model.depth + 1):
        np.testing.assert_array_equal(model.features(images(), layer), outputs[layer])
        np.testing.assert_array_equal(model.features(images(), layer - model.depth - 1), outputs[layer])
    np.testing.assert_array_equal(model.features(images()), outputs[-2])
    if model.grid is None:
        assert model.features(images(), 1).ndim == 4
    else:
        rows, columns = model.grid
        assert model.features(images(), 1).shape[1] == model.num_prefix_tokens + rows * columns


@configs
@pytest.mark.parametrize("layer", [4, -5, 1.0, True, "1"])
def test_a_layer_that_does_not_exist_is_refused(config, layer):
    with pytest.raises(ValueError, match=f"there is no layer {layer}; the model has 0 to 3, or from the end −1 to −4"):
        build(config).features(images(), layer)


@configs
@pytest.mark.parametrize("recompute", [False, True])
def test_the_backward_above_frozen_parts_gives_the_gradients_of_the_whole_backward(config, recompute):
    ctx = Context(training=True, key=Key(0), recompute=recompute)
    for frozen in range(len(model_of(config).parts())):
        whole, short = model_of(config), model_of(config)
        for model in (whole, short):
            freeze_parts(model, frozen)
            model.zero_grad()
        logits, cache = whole(images(), ctx)
        whole.backward(np.ones_like(logits), cache)
        got, caches = short.forward_above(images(), frozen, ctx)
        short.backward_above(np.ones_like(logits), caches)
        np.testing.assert_array_equal(got, logits)
        for (name, expected), parameter in zip(whole.named_parameters(), short.parameters()):
            np.testing.assert_array_equal(parameter.grad, expected.grad, err_msg=name)


@configs
@pytest.mark.parametrize(("word", "parts"), [("embed", 1), ("1", 2), ("3", 4), ("trunk", -1)])
def test_freeze_values_mean_the_same_for_every_architecture(config, word, parts):
    model = build(config, device="meta")
    assert frozen_parts(word, model) == parts % len(model.parts())
    with pytest.raises(ValueError, match="the model has 3 layers, got '4'"):
        frozen_parts("4", model)


def test_learning_rates_fall_from_the_head_to_the_first_part():
    scales = optim.layerwise_decay(Tiny(TinyConfig()), 0.5)
    assert scales["readout.weight"] == 1
    assert [scales[f"floors.{i}.mlp.fc1.weight"] for i in (2, 1, 0)] == [0.5, 0.25, 0.125]
    assert {scales[name] for name in scales if not name.startswith(("floors", "readout"))} == {0.0625}


@configs
def test_probabilities_add_up_to_one_and_need_classes(config):
    np.testing.assert_allclose(model_of(config).predict(images()).sum(1), 1)
    without = build(type(config)(**{**vars(config), "num_classes": 0}))
    with pytest.raises(ValueError, match=r"the model has no head \(num_classes is 0\)"):
        without.predict(images())


@configs
def test_the_shape_of_the_images_is_the_configurations(config):
    assert build(config, device="meta").image_shape == (1, 8, 8)


def test_features_that_an_architecture_lacks_are_refused_by_name():
    model = Tiny(TinyConfig())
    with pytest.raises(ValueError, match="^Tiny can't be made for images of another size than it was trained with$"):
        model.at_img_size(12)
    with pytest.raises(ValueError, match="^Tiny needs all of its patches; optim.keep-patches must be 1, got 0.5$"):
        model.forward_some(images(), 0.5, Context(training=True, key=Key(0)))


def test_an_architecture_is_known_by_its_name_its_configuration_and_its_models():
    assert config_class("tiny") is TinyConfig and config_class("vit") is ViTConfig
    assert architecture_name(TinyConfig()) == architecture_name(Tiny(TinyConfig(), device="meta")) == "tiny"
    assert isinstance(build(VIT), ViT) and isinstance(create_model("tiny_8", width=4), Tiny)


def test_an_unknown_architecture_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="^unknown architecture 'vits'; did you mean vit\\?$"):
        config_class("vits")
    with pytest.raises(ValueError, match="^unknown architecture 'mixer'; expected one of .*vit, "):
        config_class("mixer")
    with pytest.raises(ValueError, match="^int is not registered as an architecture or its configuration$"):
        architecture_name(3)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="^the architecture 'vit' is registered already$"):
        register("vit", ViTConfig)(Tiny)


def test_a_buffer_of_an_architecture_is_in_its_state_and_its_update_in_the_cache():
    model = model_of(TinyConfig())
    assert "running_mean" in dict(model.stem.named_buffers()) and "stem.running_mean" in model.state_dict()
    _, (c_stem, *_) = model(images(), Context(training=True, key=Key(0)))
    assert c_stem.update.module is model.stem and model(images())[1][0].update is None


@pytest.mark.parametrize("frozen", [0, 1])
def test_the_buffers_of_frozen_parts_are_not_updated(frozen):
    _, caches = model_of(TinyConfig()).forward_above(images(), frozen, Context(training=True, key=Key(0)))
    assert len(buffer_updates(caches)) == 1 - frozen


def test_features_are_pooled_without_the_prefix_tokens_and_of_every_layer_at_once():
    model = model_of(TinyConfig(num_classes=3))
    found = features_by_layer(model, images(), [0, 2, None])
    for layer, rows in zip((0, 2), found):
        np.testing.assert_allclose(rows, model.features(images(), layer)[:, 2:].mean(1), rtol=1e-12)
    np.testing.assert_array_equal(found[2], model.features(images()))
    first = features_by_layer(model, images(), [1], pool="token")[0]
    np.testing.assert_array_equal(first, model.features(images(), 1)[:, 0])


def test_a_trace_without_attention_still_has_all_values_and_gradients():
    model = model_of(TinyConfig(num_classes=3))
    trace = probe.trace(model, images(), [0, 2])
    assert trace.attention is None and trace.attention_gradients is None
    assert (trace.grid, trace.prefix, trace.layers) == ((2, 2), 2, ("stem", "floors.0", "floors.1", "floors.2"))
    for layer in range(4):
        np.testing.assert_array_equal(trace.residual_stream[layer], model.features(images(), layer))
    assert set(trace.values) == set(trace.gradients) == {path for path, _ in model.named_modules()}
    norms = probe.norms_by_layer(trace)
    assert norms.attn is None and norms.mlp.shape == (3, 2) and norms.stream.shape == (4, 2)
    probe.draw_norms(norms)
    frequencies, amplitudes = probe.fourier_spectrum(trace.residual_stream, trace.grid, trace.prefix)
    assert amplitudes.shape == (4, 2, len(frequencies))


def test_probes_that_an_architecture_does_not_support_are_refused_in_one_line():
    model = Tiny(TinyConfig())
    with pytest.raises(ValueError, match="plain Vision Transformer, and a Tiny has others"):
        explorer(model, images(1), [0], np.zeros((1, 1, 8, 8), "uint8"), "0123456789", ["a"])
    assert probe.patch_filters(model).shape == (12, 1, 4, 4) and probe.patch_positions(model).shape == (4, 12)


@pytest.mark.parametrize("prefix", [0, 1, 2, 5])
def test_maps_and_distances_leave_out_all_prefix_tokens(prefix):
    attention = np.random.default_rng(0).random((1, 1, 2, prefix + 6, prefix + 6))
    maps = probe.over_patches(attention, (2, 3), "avg", prefix)
    patches = attention[..., prefix:, prefix:]
    np.testing.assert_allclose(maps, patches.mean(-2).reshape(1, 1, 2, 2, 3))
    np.testing.assert_array_equal(probe.head_maps(attention, (2, 3), prefix).reshape(patches.shape), patches)
    far = probe.mean_attention_distance(attention, (2, 3), 4, prefix)
    np.testing.assert_allclose(far, probe.mean_attention_distance(patches, (2, 3), 4, 0))
    with pytest.raises(ValueError, match="for 2×3 patches"):
        probe.over_patches(attention, (2, 3), prefix=prefix + 1)
