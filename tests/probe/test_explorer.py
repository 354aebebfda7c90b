"""The contents of the page; its behaviour in a browser is tested in test_explorer_page.py."""

import re
from dataclasses import replace

import numpy as np
import pytest
from attentions import random_attention
from hypothesis import given
from hypothesis import strategies as st
from pages import about, arrays_of, page_of
from reading import unpacked
from strategies import images_for, redrawn, seeds, vits

from tinyvit import ViT, ViTConfig, create_model, probe
from tinyvit import functional as F
from tinyvit.probe.explorer import MAX_LIVE_PAGE_BYTES, MAX_PAGE_BYTES, choose_images, live
from tinyvit.probe.explorer.numbers import facts, numbers
from tinyvit.probe.explorer.packing import layout, pack, share_codes, signed_codes

CONFIG = ViTConfig(8, 4, in_chans=1, num_classes=5, embed_dim=12, depth=2, num_heads=3)
LARGE = ViTConfig(32, 4, num_classes=10, embed_dim=192, depth=9, num_heads=12)  # 9 layers × 12 heads × 65 tokens


def small(**fields):
    return redrawn(ViT(replace(CONFIG, **fields)))


# -- the numbers ------------------------------------------------------------------------------------------------------


@given(model=vits())
def test_recorded_numbers_are_the_models_within_half_a_step_of_their_codes(model):
    image, label = images_for(model, 0, 1)[0], model.config.num_classes - 1
    loss, held = numbers(model, image, label, np.zeros(image.shape, "uint8"))
    seen = probe.trace(model, image[None], [label])
    close = np.testing.assert_allclose

    for name, expected in (("attention", seen.attention[:, 0]), ("rollout", rollouts(seen))):
        close(held[name] / 4095, expected, rtol=0, atol=0.5 / 4095 + 1e-7)
    stream = seen.residual_stream[:, 0]
    dstream = np.stack([seen.gradients[path][0][0] for path in ("(embed)", *blocks(model))])
    for name, expected in (("stream", stream), ("dstream", dstream), ("dattention", seen.attention_gradients[:, 0])):
        largest = np.abs(expected).max((-2, -1))
        close(held[f"{name}_largest"], largest, rtol=1e-6)
        decoded = held[name] / 127 * largest[..., None, None]
        assert (np.abs(decoded - expected) <= largest[..., None, None] * (0.5 / 127 + 1e-6)).all()
    close(held["stream_length"], np.linalg.norm(stream, axis=-1), rtol=1e-6)
    close(held["dstream_length"], np.linalg.norm(dstream, axis=-1), rtol=1e-6)

    np.testing.assert_array_equal(held["pixels"], image.astype("float32"))
    close(held["dpixels"], seen.gradients[""][1][0], rtol=1e-6)
    close(held["logits"], seen.logits[0], rtol=1e-6)
    close(held["probabilities"], seen.probabilities[0], rtol=1e-6)
    target = np.eye(model.config.num_classes)[label]
    close(held["dlogits"], seen.probabilities[0] - target, rtol=1e-5, atol=1e-7)
    assert loss == pytest.approx(-np.log(seen.probabilities[0, label]), rel=1e-5, abs=1e-9)


@given(model=vits())
def test_a_live_page_holds_the_images_and_the_models_weights(model):
    page, images, labels = page_of(model, 2, mean=0.25, std=0.5)
    held = about(page.html)
    weights = unpacked(held["live"]["weights"], held["live"]["layout"])
    state = model.state_dict()
    if "pos_embed_x" in state:
        state["pos_embed"], _ = F.grid_positions(state.pop("pos_embed_x"), state.pop("pos_embed_y"))
    np.testing.assert_equal(weights, {name: array.astype("float32") for name, array in state.items()})
    channels = model.config.in_chans
    assert (held["live"]["mean"], held["live"]["std"]) == ([0.25] * channels, [0.5] * channels)
    for b, image in enumerate(held["images"]):
        arrays = arrays_of(page.html, b)
        assert set(arrays) == {"picture", "pixels"}
        np.testing.assert_array_equal(arrays["pixels"], images[b].astype("float32"))
        seen = probe.trace(model, images[b : b + 1], labels[b : b + 1])
        assert image["loss"] == pytest.approx(seen.loss, rel=1e-5, abs=1e-9)
        assert (image["label"], image["prediction"]) == (labels[b], seen.logits[0].argmax())


def blocks(model):
    return [f"blocks.{i}" for i in range(model.config.depth)]


def rollouts(seen):
    return [probe.attention_rollout(seen.attention[:depth])[0] for depth in range(1, len(seen.attention) + 1)]


def test_colours_are_shown_as_they_are_and_other_channels_as_their_mean_in_grey():
    colour = arrays_of(page_of(small(in_chans=3))[0].html, 0)["picture"]
    random = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), dtype="uint8")
    np.testing.assert_array_equal(colour, random[0].transpose(1, 2, 0))
    grey = arrays_of(page_of(small(in_chans=2))[0].html, 0)["picture"]
    mean = np.random.default_rng(0).integers(0, 256, (1, 2, 8, 8), dtype="uint8")[0].mean(0).round()
    np.testing.assert_array_equal(grey, np.repeat(mean[..., None], 3, axis=2))


# -- packing ----------------------------------------------------------------------------------------------------------


@given(seed=seeds(), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e6]))
def test_codes_are_within_half_a_step_and_the_largest_is_exact(seed, scale):
    x = scale * np.random.default_rng(seed).standard_normal((2, 3, 4))
    codes, largest = signed_codes(x, 2)
    assert codes.dtype == np.int8 and largest.shape == (2,)
    assert (np.abs(codes).max((1, 2)) == 127).all()
    assert (np.abs(codes / 127 * largest[:, None, None] - x) <= largest[:, None, None] * (0.5 / 127 + 1e-6)).all()
    shares = random_attention((3, 4), seed)
    assert np.abs(share_codes(shares) / 4095 - shares).max() <= 0.5 / 4095 + 1e-12


@given(seed=seeds(), dtypes=st.lists(st.sampled_from(["uint8", "int8", "<u2", "<f4", ">f4"]), min_size=1, max_size=4))
def test_what_was_packed_is_unpacked_in_any_order_of_its_bytes(seed, dtypes):
    random = np.random.default_rng(seed)
    arrays = {str(i): (random.standard_normal(random.integers(0, 4, 3)) * 50).clip(0, 100).astype(dtype)
              for i, dtype in enumerate(dtypes)}  # fmt: skip
    for name, array in unpacked(pack(arrays), layout(arrays)).items():
        np.testing.assert_array_equal(array, arrays[name])


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_recorded_page_of_9_layers_12_heads_and_65_tokens_stays_below_5_megabytes_and_has_several_images():
    page, *_ = page_of(redrawn(ViT(LARGE)), 12)
    assert 6 <= page.images <= 12 and len(page.html.encode()) <= MAX_PAGE_BYTES == 5_000_000


def test_a_live_page_of_the_largest_model_that_runs_in_it_stays_below_a_megabyte():
    config = ViTConfig(32, 4, num_classes=10, embed_dim=64, depth=3, num_heads=4, mlp_ratio=3.4)
    model = redrawn(ViT(config))
    assert 0.9 * live.MAX_PARAMETERS < model.num_parameters() <= live.MAX_PARAMETERS
    page, *_ = page_of(model, 12)
    assert page.images >= 6 and len(page.html.encode()) <= MAX_LIVE_PAGE_BYTES == 1_000_000


@pytest.mark.parametrize(("config", "reason"), [
    (LARGE, "parameters, and the page has room for 150,000"),
    (ViTConfig(128, 32, embed_dim=8, depth=1, num_heads=1), "16,384 pixels, and the page has room for 4,096"),
    (ViTConfig(32, 1, embed_dim=8, depth=4, num_heads=1), "million multiplications"),
    (replace(CONFIG, activation="quick_gelu"), "its activation is quick_gelu, and the page computes gelu and gelu_tan"),
])  # fmt: skip
def test_a_model_that_can_not_run_in_the_page_has_a_reason(config, reason):
    assert reason in live.why_not_live(ViT(config))


@pytest.mark.parametrize("name", ["hybrid_digits", "vit_small_patch14_dinov2", "deit_tiny_distilled_patch16_224"])
def test_a_page_of_another_architecture_which_it_would_explain_wrongly_is_refused(name):
    with pytest.raises(ValueError, match="explains the steps of a plain Vision Transformer, and a .* has others"):
        facts(create_model(name, device="meta"))


def test_a_small_model_runs_in_the_page_unless_it_computes_in_bfloat16(monkeypatch):
    model = small()
    assert live.why_not_live(model) is None
    monkeypatch.setattr(ViT, "precision", "bfloat16")                      # which needs a GPU
    assert "bfloat16" in live.why_not_live(model)


def test_the_page_holds_as_many_images_as_fit():
    model = small()
    whole = page_of(model, 4)[0]
    sizes = [len(page_of(model, count, names="abcd"[:count])[0].html.encode()) for count in (2, 3)]
    for largest, images in ((sizes[1], 3), (sizes[1] - 1, 2), (sizes[0], 2)):
        page = page_of(model, 4, names="abcd", largest=largest)[0]
        assert page.images == len(about(page.html)["images"]) == images
        assert len(page.html.encode()) <= largest
    assert whole.images == 4


def test_a_page_loads_nothing():
    html, *_ = page_of(small())
    text = html.html
    assert "://" not in text and "@import" not in text and "url(" not in text
    for forbidden in ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import(", "Worker("):
        assert forbidden not in text
    assert set(re.findall(r'\b(?:src|href|action|srcset|data)="([^"]*)"', text)) == {"data:,"}
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-") and "unsafe" not in policy
    assert "{{" not in text


HARMFUL = ["</script><b>", "<!--<script>", "<img src=x onerror=alert(1)>", "{{SCRIPT}}", "&lt;\u2028'\"\\", "猫"]


def test_no_name_can_break_out_of_its_html_or_script():
    page, *_ = page_of(small(num_classes=6), 2, classes=HARMFUL, names=HARMFUL[:2], title=HARMFUL[0])
    plain, *_ = page_of(small(num_classes=6), 2)
    for tag in ("<script", "</script", "<b>", "<img", "<!--"):
        assert page.html.count(tag) == plain.html.count(tag)
    assert about(page.html)["classes"] == HARMFUL
    assert [image["name"] for image in about(page.html)["images"]] == HARMFUL[:2]
    assert "<title>&lt;/script&gt;&lt;b&gt;</title>" in page.html


# -- which images -----------------------------------------------------------------------------------------------------


def probabilities_of(labels, right, sure=0.9):
    """Rows that are right or wrong; later wrong ones give the label less probability."""
    rows = np.full((len(labels), 3), 0.01)
    for i, (label, is_right) in enumerate(zip(labels, right)):
        rows[i, label if is_right else (label + 1) % 3] = sure + 0.001 * i
        if not is_right:
            rows[i, label] = 0.1 - 0.001 * i
    return rows


def test_two_recognised_images_of_different_classes_come_before_a_mistake():
    labels = np.array([1, 1, 0, 2, 0, 1, 2])
    right = [True, True, True, True, False, False, False]
    # recognised: 2 (0), 0 (1), 3 (2), then the second of class 1; not: 6, then 5, 4
    assert choose_images(probabilities_of(labels, right), labels, 7) == [2, 0, 6, 3, 1, 5, 4]


@pytest.mark.parametrize("right", [[True] * 4, [False] * 4])
def test_if_all_are_right_or_all_are_wrong_images_are_chosen_from_those(right):
    labels = np.array([0, 1, 2, 0])
    assert sorted(choose_images(probabilities_of(labels, right), labels, 4)) == [0, 1, 2, 3]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_numbers_that_are_not_finite_are_refused():
    model = small()
    model.head.weight.data[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite, which can't be shown"):
        page_of(model)


def test_a_model_that_is_too_large_is_refused_with_its_size():
    with pytest.raises(ValueError, match=r"its attention is 2×3×5×5 numbers; take a model with fewer tokens"):
        page_of(small(), largest=1000)
