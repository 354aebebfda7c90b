import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, ViT, ViTConfig, gradcheck
from tinyvit import functional as F
from tinyvit.models.vit import some_tokens
from tinyvit.models.vit_config import POSITIONS

SMALL = dict(img_size=(8, 12), patch_size=(4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=3, num_heads=3)


def vit(seed=0, dtype="float64", **fields):
    """A small ViT with every parameter from N(0, 0.2²)."""
    fields = SMALL | fields
    if fields.get("positions") == "rope":
        fields["num_heads"] = 2
    return redrawn(ViT(ViTConfig(**fields), dtype=dtype), seed)


def images(seed=0, count=3, dtype="float64"):
    return np.random.default_rng(seed).standard_normal((count, 2, 8, 12)).astype(dtype)


VARIANTS = [
    {},
    dict(global_pool="avg", qkv_bias=False),
    dict(head_hidden=7, activation="gelu_tanh", norm_eps=1e-12),
    dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3),
    dict(num_classes=0),
    dict(num_classes=0, head_hidden=7),
]


@pytest.mark.parametrize("method", ["complex", "central"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: ", ".join(v) or "default")
@pytest.mark.parametrize("positions", POSITIONS)
def test_all_gradients_of_the_model_match_the_numerical_derivative(positions, variant, method):
    model = vit(positions=positions, **variant)
    ctx = Context(training=True, key=Key(0))
    report = gradcheck.check_model(model, images(), method=method, ctx=ctx)
    assert report.max_error < gradcheck.MODEL_BOUNDS[method], report


def test_at_the_papers_initialisation_no_gradient_gets_through_the_head():
    model = ViT(ViTConfig(**SMALL), dtype="float64")
    logits, cache = model(images())
    assert not model.backward(np.ones_like(logits), cache).any()
    assert not model.blocks[0].mlp.fc1.weight.grad.any() and model.head.bias.grad.all()


@pytest.mark.parametrize("positions", POSITIONS)
def test_float32_agrees_with_float64(positions):
    double, single = vit(positions=positions), vit(positions=positions).to(dtype="float32")
    results = []
    for model, dtype in ((double, "float64"), (single, "float32")):
        logits, cache = model(images(dtype=dtype))
        loss, loss_cache = F.cross_entropy(logits, np.array([0, 3, 4]))
        dimages = model.backward(F.cross_entropy_backward(1.0, loss_cache), cache)
        assert {logits.dtype.name, loss.dtype.name, dimages.dtype.name} == {dtype}
        results.append((logits, dimages, *(parameter.grad for parameter in model.parameters())))
    (logits64, *gradients64), (logits32, *gradients32) = results
    np.testing.assert_allclose(logits32, logits64, rtol=1.3e-6, atol=1e-5)
    largest = max(np.abs(gradient).max() for gradient in gradients64)
    for got, want in zip(gradients32, gradients64):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-5 * largest)


def permuted(x, order, patch):
    """Images with their patches in another order."""
    tokens, _ = F.patchify(x, patch)
    return F.unpatchify(tokens[:, order], patch, x.shape[2:])[0]


@given(seed=seeds(), pool=st.sampled_from(["token", "avg"]))
def test_a_vit_without_positions_is_invariant_to_the_order_of_the_patches(seed, pool):
    model = vit(positions="none", global_pool=pool)
    order = np.random.default_rng(seed).permutation(8)
    np.testing.assert_allclose(model(permuted(images(), order, (4, 3)))[0], model(images())[0], atol=1e-10)


@pytest.mark.parametrize("positions", [p for p in POSITIONS if p != "none"])
def test_a_vit_with_positions_depends_on_the_order_of_the_patches(positions):
    model = vit(positions=positions)
    assert np.abs(model(permuted(images(), np.arange(8)[::-1], (4, 3)))[0] - model(images())[0]).max() > 1e-3


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_sample_does_not_depend_on_the_rest_of_its_batch(positions):
    model = vit(positions=positions)
    together, _ = model(images())
    for x, logits in zip(images(), together):
        np.testing.assert_allclose(model(x[None])[0][0], logits, atol=1e-12)


def test_the_parts_called_one_after_the_other_are_the_model():
    model = vit()
    logits, cache = model(images())
    tokens, c_embed = model.embed(images())
    encoded, c_encode = model.encode(tokens)
    features, c_pool = model.pool(encoded)
    by_hand, c_head = model.head(features)
    assert (tokens.shape, features.shape) == ((3, 9, 24), (3, 24))
    np.testing.assert_array_equal(by_hand, logits)
    dlogits = np.cos(logits)
    dimages = model.embed.backward(
        model.encode.backward(model.pool.backward(model.head.backward(dlogits, c_head), c_pool), c_encode), c_embed
    )
    np.testing.assert_array_equal(dimages, model.backward(dlogits, cache))


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_without_classes_the_output_is_the_features_that_the_head_would_read(pool):
    headless, whole = vit(num_classes=0, global_pool=pool), vit(global_pool=pool)
    headless.load_state_dict({name: x for name, x in whole.state_dict().items() if not name.startswith("head.")})
    tokens, _ = whole.embed(images())
    features, _ = whole.pool(whole.encode(tokens)[0])
    np.testing.assert_array_equal(headless(images())[0], features)
    np.testing.assert_array_equal(whole.head(headless(images())[0])[0], whole(images())[0])


def test_without_classes_an_mlp_head_returns_its_tanh():
    headless, whole = vit(num_classes=0, head_hidden=7), vit(head_hidden=7)
    headless.load_state_dict({name: x for name, x in whole.state_dict().items() if not name.startswith("head.")})
    hidden, _ = headless(images())
    assert hidden.shape == (3, 7) and np.abs(hidden).max() < 1
    np.testing.assert_allclose(hidden @ whole.state_dict()["head.weight"].T + whole.state_dict()["head.bias"],
                               whole(images())[0], rtol=1e-12)  # fmt: skip


def test_without_classes_there_are_no_probabilities():
    with pytest.raises(ValueError, match=r"the model has no head \(num_classes is 0\): it gives features"):
        vit(num_classes=0).predict(images())


def test_the_cache_mirrors_the_model():
    _, cache = vit()(images())
    probs = cache.blocks[2].attn.heads.probs
    assert probs.shape == (3, 3, 9, 9)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-12)
    assert cache.embed.patch_embed.patches.patch == (4, 3)


def test_predict_gives_class_probabilities():
    model = vit()
    probs = model.predict(images())
    assert type(probs) is type(model.storage.data) and probs.shape == (3, 5)
    np.testing.assert_allclose(probs, F.softmax(model(images())[0])[0], rtol=1e-14)


def test_parameters_have_timms_names_and_shapes():
    shapes = {name: parameter.shape for name, parameter in vit(depth=1).named_parameters()}
    assert shapes == {
        "cls_token": (1, 1, 24),
        "pos_embed": (1, 9, 24),
        "patch_embed.proj.weight": (24, 2, 4, 3),
        "patch_embed.proj.bias": (24,),
        "blocks.0.norm1.weight": (24,),
        "blocks.0.norm1.bias": (24,),
        "blocks.0.attn.qkv.weight": (72, 24),
        "blocks.0.attn.qkv.bias": (72,),
        "blocks.0.attn.proj.weight": (24, 24),
        "blocks.0.attn.proj.bias": (24,),
        "blocks.0.norm2.weight": (24,),
        "blocks.0.norm2.bias": (24,),
        "blocks.0.mlp.fc1.weight": (48, 24),
        "blocks.0.mlp.fc1.bias": (48,),
        "blocks.0.mlp.fc2.weight": (24, 48),
        "blocks.0.mlp.fc2.bias": (24,),
        "norm.weight": (24,),
        "norm.bias": (24,),
        "head.weight": (5, 24),
        "head.bias": (5,),
    }
    assert set(dict(vit(depth=1).named_parameters())) == set(vit(depth=1).state_dict())


def test_names_that_depend_on_the_configuration():
    assert "blocks.0.attn.qkv.bias" not in vit(qkv_bias=False).state_dict()
    assert vit(positions="learned_2d").state_dict()["pos_embed_x"].shape == (1, 4, 12)
    assert vit(positions="learned_2d").state_dict()["pos_embed_y"].shape == (1, 2, 12)
    hidden = vit(head_hidden=7).state_dict()
    assert hidden["pre_logits.fc.weight"].shape == (7, 24) and hidden["head.weight"].shape == (5, 7)
    assert not [name for name in vit(positions="none").state_dict() if "pos_embed" in name]
    assert not [name for name in vit(num_classes=0).state_dict() if "head" in name]
    without_classes = vit(num_classes=0, head_hidden=7).state_dict()
    assert without_classes.keys() == hidden.keys() - {"head.weight", "head.bias"}


def test_stochastic_depth_grows_linearly_from_zero():
    model = vit(drop_path_rate=0.3, depth=4)
    rates = [block.drop_path2.rate for block in model.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3])
    assert vit(drop_path_rate=0.3, depth=1).blocks[0].drop_path1.rate == 0


# -- bad input ----------------------------------------------------------------------------------------------------


def test_images_can_be_given_by_name():
    np.testing.assert_array_equal(vit()(images=images())[0], vit()(images())[0])


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match=r"expected at least one image, got \(0, 2, 8, 12\)"):
        vit().predict(images()[:0])


@pytest.mark.parametrize("shape", [(2, 3, 8, 12), (2, 2, 8, 8), (2, 8, 12), (2, 2, 12, 8), (2,)])
def test_images_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match=r"expected images \(B, 2, 8, 12\), got"):
        vit()(np.ones(shape))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_images_that_are_not_normalised_are_refused(dtype):
    with pytest.raises(ValueError, match=f"expected normalised images of floating-point numbers .*, got {dtype}"):
        vit()(np.ones((1, 2, 8, 12), dtype))


def test_input_that_is_not_an_array_is_refused():
    with pytest.raises(ValueError, match="expected images .* got list"):
        vit()([[1.0]])


def test_images_are_cast_to_the_models_dtype():
    assert vit(dtype="float32")(images(dtype="float64"))[0].dtype == "float32"
    assert vit(dtype="float64")(images(dtype="float32"))[0].dtype == "float64"


def test_numpy_numbers_in_a_configuration_become_pythons():
    config = ViTConfig(embed_dim=np.int64(24), img_size=np.int32(8), num_heads=3, norm_eps=np.float64(1e-6))
    assert [type(x) for x in (config.embed_dim, config.img_size, config.norm_eps)] == [int, int, float]


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(img_size=30), "image size 30×30 is not a multiple of the patch size 4×3; pad or resize to 32×30"),
        (dict(embed_dim=25), "embed_dim 25 is not divisible by num_heads 3"),
        (dict(embed_dim=27, positions="learned_2d"), "positions 'learned_2d' need embed_dim divisible by 2, got 27"),
        (dict(embed_dim=27, positions="sincos_1d"), "positions 'sincos_1d' need embed_dim divisible by 2, got 27"),
        (dict(embed_dim=30, positions="sincos_2d"), "positions 'sincos_2d' need embed_dim divisible by 4, got 30"),
        (dict(embed_dim=18, positions="rope"), "positions 'rope' need heads whose width is divisible by 4, got 6"),
        (dict(positions="absolute"), "positions must be one of learned, learned_2d, .*, got 'absolute'"),
        (dict(global_pool="max"), "global_pool must be one of token, avg, got 'max'"),
        (dict(activation="relu"), "activation must be one of gelu, gelu_tanh, quick_gelu, got 'relu'"),
        (dict(depth=0), "depth must be an int from 1 to 1,000, got 0"),
        (dict(num_classes=-1), "num_classes must be an int of at least 0, got -1"),
        (dict(head_hidden=0), "head_hidden must be a positive int or None, got 0"),
        (dict(mlp_ratio=0.01), "mlp_ratio 0.01 leaves the MLP of width 24 no hidden layer"),
        (dict(drop_rate=1.0), "drop_rate must be a number of at least 0 and below 1, got 1.0"),
        (dict(drop_path_rate=-0.1), "drop_path_rate must be a number of at least 0 and below 1, got -0.1"),
        (dict(img_size=(8, 12, 3)), "img_size must be a positive int or"),
        (dict(patch_size=0), "patch_size must be a positive int or"),
        (dict(img_size=8.0), r"img_size must be a positive int or .* got 8\.0"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused_with_the_reason(fields, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**SMALL | fields)


# -- a random choice of patches ----------------------------------------------------------------------------------------


@given(seed=seeds())
def test_patches_are_drawn_without_repetition_after_the_class_token(seed):
    index = some_tokens(np.zeros((3, 17, 2)), 0.5, 1, Key(seed))
    assert index.shape == (3, 9) and (index[:, 0] == 0).all()
    assert all(len(set(row)) == 9 and set(row) <= set(range(17)) for row in index.tolist())


def test_every_patch_is_as_likely_as_any_other():
    index = some_tokens(np.zeros((20_000, 17, 1)), 0.25, 1, Key(0))
    counts = np.bincount(index[:, 1:].ravel(), minlength=17)[1:]
    assert np.abs(counts / 20_000 - 0.25).max() < 5 * (0.25 * 0.75 / 20_000) ** 0.5


def test_another_step_draws_other_patches():
    tokens = np.zeros((3, 17, 2))
    assert (some_tokens(tokens, 0.5, 1, Key(0, 1)) != some_tokens(tokens, 0.5, 1, Key(0, 2))).any()


def test_a_sample_gets_the_same_patches_however_the_batch_was_split():
    whole = some_tokens(np.zeros((5, 17, 2)), 0.5, 1, Key(0))
    rest = some_tokens(np.zeros((3, 17, 2)), 0.5, 1, Key(0).skip(2))
    np.testing.assert_array_equal(whole[2:], rest)


@pytest.mark.parametrize("positions", POSITIONS)
def test_all_patches_in_any_order_give_the_logits_of_the_image(positions):
    model, ctx = vit(positions=positions, global_pool="avg"), Context(training=True, key=Key(0))
    logits, _ = model.forward_some(images(), 1.0, ctx)
    np.testing.assert_allclose(logits, model(images())[0], atol=1e-12)


def test_a_share_below_one_patch_keeps_one():
    assert some_tokens(np.zeros((2, 5, 2)), 0.01, 1, Key(0)).shape == (2, 2)
