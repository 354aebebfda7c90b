"""ViViT: videos, joint and factorised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import gradcheck
from tinyvit.keys import Key
from tinyvit.models import FactorisedViViTConfig, ViTConfig, ViViTConfig, build, create_model
from tinyvit.models.vivit import inflate_filters
from tinyvit.nn import Context

SMALL = dict(img_size=(8, 12), patch_size=4, in_chans=2, num_classes=3, embed_dim=12, depth=2, num_heads=2, frames=6,
             tubelet_frames=2)  # fmt: skip
JOINT, FACTORISED = ViViTConfig(**SMALL), FactorisedViViTConfig(**SMALL, temporal_depth=2)
CONFIGS = {"joint": JOINT, "factorised": FACTORISED}
IMAGES = ViTConfig(**{name: value for name, value in SMALL.items() if name in ViTConfig.__dataclass_fields__})


def random_videos(config, count=2):
    shape = count, config.in_chans, config.frames, *config.img_size
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("name", CONFIGS)
@given(pool=st.sampled_from(["token", "avg"]), positions=st.sampled_from(["learned", "sincos_3d", "none"]),
       tubelet=st.sampled_from([1, 2, 3, 6]), seed=seeds())  # fmt: skip
def test_gradients_of_any_vivit_match_the_complex_step(name, pool, positions, tubelet, seed):
    config = replace(CONFIGS[name], global_pool=pool, positions=positions, tubelet_frames=tubelet)
    model = redrawn(build(config, dtype="float64"), seed)
    report = gradcheck.check_model(model, random_videos(config), redraw=False, directions=2)
    assert report.max_error < 1e-9, report


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_with_dropout_and_recomputation_match_the_complex_step(name):
    config = replace(CONFIGS[name], drop_rate=0.2, attn_drop_rate=0.2, drop_path_rate=0.3)
    ctx = Context(training=True, key=Key(3, 1), recompute=True)
    report = gradcheck.check_model(build(config, dtype="float64"), random_videos(config), directions=3, ctx=ctx)
    assert report.max_error < 1e-9, report


def test_vivit_b_16x2_has_exactly_as_many_parameters_as_in_its_release():
    assert create_model("vivit_base_patch16x2_224", device="meta").num_parameters() == 88_954_000


def test_tubelets_of_single_images_make_it_a_vit():
    """With one frame, tubelets are patches."""
    config = replace(JOINT, frames=1, tubelet_frames=1)
    video, image = redrawn(build(config, dtype="float64")), build(IMAGES, dtype="float64")
    state = video.state_dict()
    state["patch_embed.proj.weight"] = state["patch_embed.proj.weight"][:, :, 0]
    image.load_state_dict(state)
    x = random_videos(config)
    np.testing.assert_allclose(video(x)[0], image(x[:, :, 0])[0], rtol=1e-13)


@given(seed=seeds(), pool=st.sampled_from(["token", "avg"]))
def test_in_the_spatial_stage_no_gradient_reaches_the_patches_of_other_frames(seed, pool):
    model = redrawn(build(replace(FACTORISED, global_pool=pool), dtype="float64"), seed)
    videos, parts = random_videos(FACTORISED), model.parts()[: 1 + FACTORISED.depth]
    tokens, caches = model.forward_parts(videos, parts)
    t, s = 3, 2
    dtokens = np.zeros(tokens.shape).reshape(len(tokens), t, -1, 12)
    dtokens[:, 1] = np.random.default_rng(seed).standard_normal(dtokens[:, 1].shape)
    dtokens = dtokens.reshape(tokens.shape)
    dvideos = model.backward_parts(dtokens, parts, caches).reshape(2, 2, t, s, 8, 12)
    assert not dvideos[:, :, [0, 2]].any() and dvideos[:, :, 1].all()


def test_in_joint_attention_the_gradient_reaches_all_frames():
    model = redrawn(build(JOINT, dtype="float64"))
    parts = model.parts()[: 1 + JOINT.depth]
    tokens, caches = model.forward_parts(random_videos(JOINT), parts)
    dtokens = np.zeros(tokens.shape)
    dtokens[:, 1] = 1 + np.arange(12)
    assert model.backward_parts(dtokens, parts, caches).all()


@pytest.mark.parametrize("name", CONFIGS)
@given(seed=seeds())
def test_without_positions_the_order_of_tubelets_in_time_does_not_matter(name, seed):
    """Reversed inside its tubelets only, a video has other tokens; whole tubelets in another order, the same ones."""
    config = replace(CONFIGS[name], positions="none")
    model = redrawn(build(config, dtype="float64"), seed)
    videos = random_videos(config)
    order = np.random.default_rng(seed).permutation(3)
    moved = videos.reshape(2, 2, 3, 2, 8, 12)[:, :, order].reshape(videos.shape)
    np.testing.assert_allclose(model(moved)[0], model(videos)[0], rtol=1e-10, atol=1e-12)
    if name == "joint":
        assert not np.allclose(model(videos[:, :, ::-1])[0], model(videos)[0], rtol=1e-3)


@pytest.mark.parametrize("name", CONFIGS)
def test_with_positions_in_time_it_does(name):
    model, videos = redrawn(build(CONFIGS[name], dtype="float64")), random_videos(JOINT)
    moved = videos.reshape(2, 2, 3, 2, 8, 12)[:, :, ::-1].reshape(videos.shape)
    assert not np.allclose(model(moved)[0], model(videos)[0], rtol=1e-3)


@given(seed=seeds())
def test_a_reversed_clip_under_reversed_weights_gives_the_same_logits(seed):
    """Time has no direction of its own: reversed are the filters in time and the order of the positions."""
    model = redrawn(build(JOINT, dtype="float64"), seed)
    state = model.state_dict()
    state["patch_embed.proj.weight"] = state["patch_embed.proj.weight"][:, :, ::-1]
    first, rest = state["pos_embed"][:, :1], state["pos_embed"][:, 1:].reshape(1, 3, 6, 12)
    state["pos_embed"] = np.concatenate([first, rest[:, ::-1].reshape(1, 18, 12)], axis=1)
    mirror = build(JOINT, dtype="float64")
    mirror.load_state_dict(state)
    videos = random_videos(JOINT)
    np.testing.assert_allclose(mirror(videos[:, :, ::-1])[0], model(videos)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_masks_do_not_depend_on_how_a_batch_is_split(name):
    config = replace(CONFIGS[name], drop_rate=0.3, attn_drop_rate=0.3, drop_path_rate=0.5)
    model, videos = redrawn(build(config, dtype="float64")), random_videos(config, 3)
    key = Key(5, 2)
    whole, _ = model(videos, Context(training=True, key=key))
    parts = [model(videos[i : i + 1], Context(training=True, key=key.skip(i)))[0] for i in range(3)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-10, atol=1e-12)


# -- weights of images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["central", "average"])
@pytest.mark.parametrize("pool", ["token", "avg"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tubelet", [1, 2, 3])
def test_of_a_still_clip_an_inflated_model_embeds_what_the_image_model_does(how, pool, name, tubelet):
    config = replace(CONFIGS[name], global_pool=pool, tubelet_frames=tubelet)
    image = redrawn(build(replace(IMAGES, global_pool=pool), dtype="float64"))
    model = redrawn(build(config, dtype="float64"), 1)
    model.load_state_dict(model.state_from(image, how))
    frames = np.random.default_rng(2).standard_normal((2, 2, 8, 12))
    still = np.repeat(frames[:, :, None], 6, axis=2)
    tokens, expected = model.embed(still)[0], image.embed(frames)[0]
    t = 6 // tubelet
    prefix = 1 if name == "joint" else 0
    if prefix:
        np.testing.assert_array_equal(tokens[:, 0], expected[:, 0])
    skipped = 1 if name == "joint" or pool == "avg" else 0
    for of_frame in tokens[:, prefix:].reshape(2, t, -1, 12).transpose(1, 0, 2, 3):
        np.testing.assert_allclose(of_frame, expected[:, skipped:], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("how", ["central", "average"])
def test_the_spatial_transformer_of_an_inflated_model_is_the_image_model(how):
    image, model = redrawn(build(IMAGES, dtype="float64")), redrawn(build(FACTORISED, dtype="float64"), 1)
    model.load_state_dict(model.state_from(image, how))
    frames = np.random.default_rng(2).standard_normal((2, 2, 8, 12))
    still = np.repeat(frames[:, :, None], 6, axis=2)
    tokens, _ = model.forward_parts(still, model.parts()[:3])
    x, _ = model.frames.norm(tokens.reshape(6, 7, 12))
    features = np.repeat(image.features(frames), 3, axis=0)
    np.testing.assert_allclose(x[:, 0], features, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("S", [1, 2, 3, 4])
def test_of_central_filters_only_the_middle_frame_is_not_zero(S):
    weight = 1 + np.random.default_rng(0).random((3, 2, 4, 4))
    central = inflate_filters(weight, S)
    assert central.shape == (3, 2, S, 4, 4)
    np.testing.assert_array_equal(central[:, :, S // 2], weight)
    assert np.count_nonzero(central) == weight.size
    np.testing.assert_allclose(inflate_filters(weight, S, "average").sum(2), weight, rtol=1e-15)


@pytest.mark.parametrize("changes, message", [
    ({"embed_dim": 8}, "embed_dim 8, and not 12"),
    ({"img_size": 8}, "img_size 8, and not \\(8, 12\\)"),
    ({"positions": "sincos_2d"}, "positions 'sincos_2d', and not 'learned'"),
])  # fmt: skip
def test_an_image_model_of_another_shape_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(JOINT).state_from(build(replace(IMAGES, **changes)))


def test_only_a_vit_can_be_inflated():
    with pytest.raises(ValueError, match="a ViViT starts from a ViT for images, not from a ResNet"):
        build(JOINT).state_from(create_model("resnet8_digits"))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, message", [
    ({"tubelet_frames": 4},
     "a video of 6×8×12 .frames, height, width. is not a multiple of the tubelet 4×4×4; take one of 8×8×12"),
    ({"dynamic_img_size": True}, "a ViViT reads videos of one size"),
    ({"head_hidden": 8}, "has a linear head"),
    ({"positions": "rope"}, "positions must be one of learned, sincos_3d, none, got 'rope'"),
    ({"embed_dim": 8, "positions": "sincos_3d"}, "positions 'sincos_3d' need embed_dim divisible by 6, got 8"),
    ({"frames": 0}, "frames must be a positive int, got 0"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(JOINT, **changes)


def test_an_image_for_a_video_model_and_a_video_for_an_image_model_are_refused():
    with pytest.raises(ValueError, match=r"expected videos \(B, 2, 6, 8, 12\), got \(1, 2, 8, 12\)"):
        build(JOINT)(np.zeros((1, 2, 8, 12)))
    with pytest.raises(ValueError, match=r"expected videos \(B, 2, 6, 8, 12\), got \(1, 2, 5, 8, 12\)"):
        build(FACTORISED)(np.zeros((1, 2, 5, 8, 12)))
    with pytest.raises(ValueError, match=r"expected images \(B, 2, 8, 12\), got \(1, 2, 6, 8, 12\)"):
        build(IMAGES)(np.zeros((1, 2, 6, 8, 12)))


@pytest.mark.parametrize("name", CONFIGS)
def test_another_image_size_is_refused(name):
    with pytest.raises(ValueError, match="can't be made for images of another size"):
        build(CONFIGS[name]).at_img_size(16)
