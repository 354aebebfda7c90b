"""The page in Chromium: drawing, switching heads off, links, and the insides of the steps."""

import numpy as np
import pytest
from pages import DIGITS, page_of
from reading import STEPS, go_to, on_patches, pixels_of, value, values
from strategies import redrawn

from tinyvit import ViT, ViTConfig, probe
from tinyvit import functional as F
from tinyvit.probe.explorer import live

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
SHARE = {"rtol": 0, "atol": 6e-4}    # tenths of a percent
THREE = {"rtol": 5.1e-3, "atol": 1e-30}
FULL = 255 / 64 - 2                  # what `page_of` makes of a pixel that is fully lit, and of a black one
BLACK = -2.0


@pytest.fixture(scope="module")
def drawable():
    """A page whose drawn pixels are normalised as its images were, and its model."""
    model = redrawn(ViT(DIGITS))
    return page_of(model, 3, mean=2 * 64 / 255, std=64 / 255)[0].html, model


def black():
    return np.full((1, 8, 8), BLACK, "float32")


def guesses(page):
    rows = page.locator("#guesses tbody tr").all()
    return {row.locator("th").inner_text(): value(row.locator(".number").inner_text()) for row in rows}


def check(page, model, image, label=None):
    """The page shows what the model computes of an image: guesses, attention, and the gradient of the pixels."""
    label = page.locator("#label").input_value() if label is None else label
    seen = probe.trace(model, image[None], [model.predict(image[None]).argmax() if label == "" else int(label)])
    order = np.argsort(-seen.probabilities[0])[:3]
    found = guesses(page)
    assert list(found) == [f"class {k}" for k in order]
    np.testing.assert_allclose(list(found.values()), seen.probabilities[0][order], **SHARE)
    go_to(page, "attention")
    page.locator("#heads [role=radio]").nth(8).click()
    if page.locator("#pixels").is_visible():
        page.locator("#draw").click()
    page.locator("#patches .cell").nth(5).click()
    np.testing.assert_allclose(on_patches(page), seen.attention[2, 0, 0, 6, 1:], **SHARE)
    go_to(page, "dpixels")
    gradient = seen.gradients[""][1][0]
    page.locator("#patches .cell").nth(5).click()
    found = values(page.locator("#dpixels-patch td"))
    np.testing.assert_allclose(found, gradient[0, 2:4, 2:4].ravel(), rtol=6e-3, atol=1e-9)


def centre(page, row, column):
    box = page.locator("#pixels").bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / 8, box["y"] + (row + 0.5) * box["height"] / 8


# -- drawing ----------------------------------------------------------------------------------------------------------


def test_a_stroke_of_the_mouse_lights_every_pixel_on_its_way_and_the_numbers_follow(browse, drawable):
    html, model = drawable
    page = browse(html, viewport={"width": 1280, "height": 900})
    page.locator("#draw").click()
    page.locator("#clear").click()
    page.mouse.move(*centre(page, 1, 2))
    page.mouse.down()
    page.mouse.move(*centre(page, 6, 2))                                   # so quick that no pixel between is met
    page.mouse.move(*centre(page, 6, 5))
    page.mouse.up()
    page.mouse.move(*centre(page, 0, 7))                                   # with no button pressed
    image = black()
    image[0, 1:7, 2] = image[0, 6, 2:6] = FULL
    lit = [[255, 255, 255, 255] if pixel == FULL else [0, 0, 0, 255] for pixel in image.ravel()]
    assert pixels_of(page.locator("#picture")) == lit
    check(page, model, image)


def test_a_finger_draws_with_the_brightness_of_the_brush_and_does_not_move_the_page(browse, drawable):
    html, model = drawable
    page = browse(html, **PHONE)
    page.locator("#draw").tap()
    page.locator("#clear").tap()
    page.locator("#brush").fill("128")
    touch = page.context.new_cdp_session(page)
    for kind, cell in (("touchStart", (4, 1)), ("touchMove", (4, 3)), ("touchMove", (1, 3)), ("touchEnd", None)):
        points = [] if cell is None else [dict(zip("xy", centre(page, *cell)))]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert page.evaluate("scrollY") == 0
    image = black()
    image[0, 4, 1:4] = image[0, 1:5, 3] = 128 / 64 - 2
    assert [pixel[0] for pixel in pixels_of(page.locator("#picture"))] == np.where(image.ravel() > -2, 128, 0).tolist()
    check(page, model, image)


def test_one_pixel_is_changed_by_keys_and_the_original_comes_back(browse, drawable, made, expect):
    html, model = drawable
    page = browse(html)
    _, images, labels = page_of(model, 3)
    before = guesses(page)
    page.locator("#draw").press("Enter")
    pixels = page.locator("#pixels")
    pixels.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowRight", "ArrowLeft"):
        pixels.press(key)
    pixels.press("Space")
    expect(page.locator("#pixel")).to_contain_text("Pixel in row 2, column 2: brightness 255 of 255, gradient")
    image = images[0].copy()
    image[0, 1, 1] = FULL
    seen = probe.trace(model, image[None], labels[:1])
    gradient = page.locator("#pixel").inner_text().split("gradient ")[1]
    np.testing.assert_allclose(value(gradient), seen.gradients[""][1][0, 0, 1, 1], rtol=6e-3)
    pixels.press("-")
    pixels.press("-")
    expect(page.locator("#pixel")).to_contain_text("brightness 223 of 255")
    pixels.press("Delete")
    expect(page.locator("#pixel")).to_contain_text("brightness 0 of 255")
    pixels.press("+")
    expect(page.locator("#pixel")).to_contain_text("brightness 16 of 255")
    image[0, 1, 1] = 16 / 64 - 2
    check(page, model, image)
    page.locator("#original").click()
    assert guesses(page) == before
    check(page, model, images[0])


def test_the_loss_is_that_of_the_true_class_that_is_chosen(browse, drawable):
    html, model = drawable
    page = browse(html)
    _, images, _ = page_of(model, 3)
    page.locator("#draw").click()
    for label in (3, 9):
        page.locator("#label").select_option(str(label))
        go_to(page, "loss")
        seen = probe.trace(model, images[:1], [label])
        expected = seen.probabilities[0] - np.eye(10)[label]
        np.testing.assert_allclose(values(page.locator("#loss-bars tbody .number")), expected, **THREE)
        text = page.locator("#loss-value").inner_text()
        np.testing.assert_allclose(value(text.split(" = ")[2].split(",")[0]), seen.loss, **THREE)
        assert text.endswith(f"for the true class class {label}.")
    page.locator("#clear").click()
    assert "&label=0&" in page.url and page.locator("#label option:checked").inner_text() == "unknown"
    likeliest = model.predict(black()[None]).argmax()
    text = browse(html, "#" + page.url.split("#")[1]).locator("#loss-value").inner_text()
    assert text.endswith(f"for the likeliest class, as the true one is unknown: class {likeliest}.")


# -- heads ------------------------------------------------------------------------------------------------------------


def test_switching_heads_off_changes_probabilities_attention_and_gradients_as_in_python(browse, drawable, expect):
    html, model = drawable
    page = browse(html)
    _, images, labels = page_of(model, 3)
    before = guesses(page)
    go_to(page, "attention")
    for i in (1, 6):
        page.locator("#heads [role=radio]").nth(i).click()
        page.get_by_label("is on").uncheck()
        expect(page.locator("#readout")).to_contain_text("It is switched off")
    twin = ViT(model.config)
    state = model.state_dict()
    for block, head in ((0, 1), (1, 2)):
        state[f"blocks.{block}.attn.proj.weight"][:, 6 * head : 6 * head + 6] = 0
    twin.load_state_dict(state)
    check(page, twin, images[0], labels[0])
    go_to(page, "attention")
    assert page.locator("#heads .off").count() == 2
    expect(page.get_by_role("radio", name="block 1, head 2, switched off")).to_be_visible()
    page.locator("#all-on").press("Enter")
    assert guesses(page) == before and page.locator("#heads .off").count() == 0


# -- the way back -----------------------------------------------------------------------------------------------------


def test_the_way_back_starts_at_the_class_token_in_the_last_block_where_there_is_a_gradient(page, seen, expect):
    go_to(page, "dattention")
    expect(page.locator(".chip", has_text="Class token")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#readout")).to_contain_text("block 2")
    assert any(on_patches(page))
    go_to(page, "dtokens")
    expect(page.locator("#dtokens-slider output")).to_have_text("after block 1")
    assert any(on_patches(page))


def test_a_pixels_gradient_is_explained_by_its_factors_and_the_smallest_of_them_is_named(browse, drawable):
    html, model = drawable
    page = browse(html, "#step=dpixels", viewport={"width": 1280, "height": 1000})
    _, images, labels = page_of(model, 3)
    seen = probe.trace(model, images[:1], labels[:1])
    dtokens, weights = seen.gradients["(embed)"][0][0], model.state_dict()["patch_embed.proj.weight"].reshape(24, 4)
    gradient = seen.gradients[""][1][0, 0]
    rows, columns = np.indices((8, 8))
    dz = dtokens[1 + 4 * (rows // 2) + columns // 2]                       # (8, 8, 24): that of each pixel's token
    w = weights.T[2 * (rows % 2) + columns % 2]
    np.testing.assert_allclose((dz * w).sum(-1), gradient, rtol=1e-3, atol=1e-6)
    factors = np.stack([np.linalg.norm(dz, axis=-1), np.linalg.norm(w, axis=-1)])
    factors = np.stack([*factors, gradient / factors.prod(0)])
    best = np.unravel_index(np.abs(gradient).argmax(), (8, 8))
    box = page.locator("#dpixels-0 .cells").bounding_box()
    for row, column in ((2, 3), (0, 0), (7, 7), (5, 2), (3, 6), best):
        page.locator("#dpixels-0 .cells").click(
            position={"x": (column + 0.5) * box["width"] / 8, "y": (row + 0.5) * box["height"] / 8}
        )
        assert f"&pixel={row + 1}.{column + 1}.1" in page.url
        table = page.locator("#dpixels-factors")
        assert f"row {row + 1}, column {column + 1}" in table.locator("caption").inner_text()
        found = np.reshape(values(table.locator("td")), (4, 2))
        for i, place in enumerate(((row, column), best)):
            np.testing.assert_allclose(found[:, i], [*factors[:, *place], gradient[place]], rtol=6e-3)
        why = page.locator("#dpixels-why").inner_text()
        if (row, column) == best:
            assert why.startswith("No pixel has a larger gradient")
            continue
        least = np.argmin(np.abs(factors[:, row, column] / factors[:, *best]))
        reasons = ("the loss depends less on its token", "the weights that read its place", "closer to perpendicular")
        assert [reason in why for reason in reasons] == [i == least for i in range(3)]
        np.testing.assert_allclose(value(why.split(" = ")[1].split(" of")[0]),
                                   abs(gradient[row, column] / gradient[best]), rtol=6e-3)
    again = browse(html, "#" + page.url.split("#")[1].replace(page.url.split("pixel=")[1], "3.4"))
    assert "row 3, column 4" in again.locator("#dpixels-factors caption").inner_text()


@pytest.mark.parametrize(("pool", "who"), [("token", "Patch"), ("avg", "Class token")])
def test_where_nothing_has_a_gradient_the_page_says_why_and_shows_no_scale_from_zero_to_zero(browse, expect, pool, who):
    config = ViTConfig(8, 4, in_chans=1, embed_dim=16, depth=2, num_heads=2, global_pool=pool)
    page = browse(page_of(redrawn(ViT(config)))[0].html)
    go_to(page, "dattention")
    (page.locator("#patches .cell").first if who == "Patch" else page.locator(".chip").first).click()
    reads = "the class token alone" if pool == "token" else "the patches alone"
    expect(page.locator("#readout")).to_contain_text(f"None: after the last block the head reads {reads}")
    expect(page.locator("#scale")).to_be_hidden()
    for step in STEPS:
        go_to(page, step)
        assert "−0 " not in page.locator("main").inner_text() and "−0\n" not in page.locator("main").inner_text()


# -- insides ----------------------------------------------------------------------------------------------------------


def column(page, i):
    return values(page.locator(f"#attention-pair tbody td:nth-child({i})"))


def test_a_head_is_opened_with_queries_keys_scores_shares_values_and_what_they_add_up_to(page, seen, expect):
    go_to(page, "attention")
    page.locator("#heads [role=radio]").nth(6).click()                     # block 1, head 2
    page.locator("#patches .cell").nth(3).click()                          # token 4 asks
    page.locator("#attention-key").select_option("9")                      # token 9 answers
    qkv = seen.values["blocks.1.attn.qkv"][0].reshape(17, 3, 4, 6)
    q, k, v = qkv[4, 0, 2], qkv[9, 1, 2], qkv[9, 2, 2]
    probs = seen.attention[1, 0, 2, 4]
    output = probs @ qkv[:, 2, 2]
    for i, expected in ((2, q), (3, k), (4, q * k), (5, v), (6, probs[9] * v), (7, output)):
        np.testing.assert_allclose(column(page, i), expected, rtol=6e-3, atol=1e-7)
    np.testing.assert_allclose(value(page.locator("#attention-pair tfoot td").nth(2).inner_text()), q @ k, rtol=6e-3)
    scores = qkv[:, 1, 2] @ q / 6**0.5
    rows = page.locator("#attention-softmax tbody tr")
    np.testing.assert_allclose(values(rows.locator("td:nth-child(2)")), scores, rtol=6e-3, atol=1e-7)
    np.testing.assert_allclose(values(rows.locator("td:nth-child(4)")), probs, **SHARE)
    assert f"= {100 * probs[9]:.1f} %" in page.locator("#attention-sum").inner_text()


def test_a_matrix_reads_out_its_numbers_by_mouse_and_keys_and_chooses_its_row(page, seen, expect):
    go_to(page, "tokens")
    pad, output = page.locator("#tokens-matrix .cells"), page.locator("#tokens-matrix output")
    tokens = seen.values["(embed)"][0]
    box = pad.bounding_box()
    pad.hover(position={"x": 5.5 * box["width"] / 24, "y": 7.5 * box["height"] / 17})
    expect(output).to_contain_text("Patch 7 (row 2, column 3), number 6: ")
    np.testing.assert_allclose(value(output.inner_text().split(": ")[1]), tokens[7, 5], **THREE)
    pad.click(position={"x": 5.5 * box["width"] / 24, "y": 7.5 * box["height"] / 17})
    assert page.locator("#patches .cell").nth(6).get_attribute("aria-checked") == "true"
    pad.press("ArrowDown")
    pad.press("ArrowLeft")
    expect(output).to_contain_text("Patch 8 (row 2, column 4), number 5: ")
    pad.press("Home")
    pad.press("Enter")
    assert page.locator("#patches .cell").nth(7).get_attribute("aria-checked") == "true"
    np.testing.assert_allclose(value(output.inner_text().split(": ")[1]), tokens[8, 0], **THREE)
    largest = np.abs(tokens).max()
    np.testing.assert_allclose(value(page.locator("#tokens-matrix .scale span").last.inner_text()), largest, **THREE)


def test_layer_norms_and_mlps_are_opened_with_their_numbers(page, made, seen, expect):
    go_to(page, "norm")
    page.locator("#norm-slider input").fill("3")                           # block 1, before its MLP
    page.locator("#patches .cell").nth(10).click()
    x = seen.values["blocks.1"][0] - seen.values["blocks.1.mlp"][0]        # what its residual connection keeps
    text = page.locator("#norm-value").inner_text()
    np.testing.assert_allclose(value(text.split("mean ")[1].split(",")[0]), x[11].mean(), rtol=6e-3, atol=1e-6)
    np.testing.assert_allclose(on_patches(page), (x.var(-1) + 1e-6)[1:] ** 0.5, rtol=6e-3)
    go_to(page, "mlp")
    page.locator("#mlp-slider input").fill("1")
    h = seen.values["blocks.1.mlp.fc1"][0]
    np.testing.assert_allclose(on_patches(page), np.linalg.norm(seen.values["blocks.1.mlp"][0], axis=-1)[1:], **THREE)
    assert f"{(h[11] > 0).sum()} of its {h.shape[1]} hidden numbers" in page.locator("#mlp-value").inner_text()
    largest = page.locator("#mlp-value").inner_text().split(") = ")[1].rstrip(".")
    np.testing.assert_allclose(value(largest), F.gelu(h[11])[0].max(), **THREE)


# -- links ------------------------------------------------------------------------------------------------------------


def test_a_link_leads_to_what_was_seen_with_its_drawing_and_its_switched_off_heads(browse, drawable, expect):
    html, _ = drawable
    page = browse(html)
    page.locator(".image").nth(1).click()
    page.locator("#draw").click()
    page.locator("#pixels").press("Space")
    page.locator("#label").select_option("4")
    page.locator("#draw").click()
    go_to(page, "attention")
    page.get_by_role("radio", name="block 1, head 3").click()
    page.locator("#head-on").click()
    page.locator("#patches .cell").nth(9).click()
    address = page.url
    assert "#image=2&step=attention&token=10&block=1&head=3&off=1.3&label=5&pixels=" in address
    shown = guesses(page), on_patches(page), page.locator("#readout").inner_text()
    again = browse(html, "#" + address.split("#")[1])
    expect(again.locator("#heads .off")).to_have_count(1)
    assert (guesses(again), on_patches(again), again.locator("#readout").inner_text()) == shown
    assert again.url.split("#")[1] == address.split("#")[1]


def test_a_short_link_is_enough_and_following_one_in_the_page_goes_there(page, made, expect):
    page.evaluate("() => { location.hash = '#image=3&block=1&head=0&step=attention'; }")
    expect(page.locator(".image input").nth(2)).to_be_checked()
    expect(page.locator("#step-attention")).to_be_visible()
    np.testing.assert_allclose(on_patches(page), made.traces[2].attention[1, 0, 0, 0, 1:], **SHARE)
    go_to(page, "tokens")
    page.locator("#tokens-slider input").fill("2")
    page.evaluate("() => { location.hash = '#step=tokens&at=1&token=class'; }")
    expect(page.locator("#tokens-slider output")).to_have_text("after block 0")
    expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.parametrize("asked", [
    "image=99", "image=0", "image=x", "block=3", "head=4", "step=nowhere", "token=17", "off=0.4", "off=<b>", "label=11",
    "pixels=AAAA", "pixels=%", "pixel=9.1", "pixel=x", "step=norm&at=7",
])  # fmt: skip
def test_a_link_to_what_the_page_does_not_have_says_so_and_shows_the_rest(page, expect, asked):
    page.evaluate("hash => { location.hash = hash; }", f"#{asked}")
    expect(page.locator("#notice")).to_contain_text("The link asks for what this page doesn’t have")
    assert page.locator("b").count() == 0
    page.evaluate("() => { location.hash = '#step=logits'; }")
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.locator("#step-logits")).to_be_visible()


# -- what can't run, and names ----------------------------------------------------------------------------------------


def test_a_page_of_a_model_that_is_too_large_says_why_it_does_not_run_and_offers_nothing_that_needs_it(browse, expect):
    page = browse(page_of(redrawn(ViT(ViTConfig(32, 8, embed_dim=96, depth=2, num_heads=2))))[0].html)
    expect(page.locator("#facts")).to_contain_text("It can’t run in this page, because it has 170,986 parameters")
    expect(page.get_by_role("button", name="Draw")).to_have_count(0)
    go_to(page, "attention")
    expect(page.locator("#head-on")).to_have_count(0)
    expect(page.locator("#step-attention")).to_contain_text("this model doesn’t run in the page")
    assert page.locator("nav button").count() == 9


def test_a_recorded_page_shows_the_numbers_that_python_computed(browse, monkeypatch):
    monkeypatch.setattr(live, "MAX_PARAMETERS", 0)
    model = redrawn(ViT(DIGITS))
    made, images, labels = page_of(model)
    seen = probe.trace(model, images, labels)
    page = browse(made.html)
    for block in range(3):
        for step, maps, atol in (("attention", seen.attention, 6e-4), ("dattention", seen.attention_gradients, 0)):
            go_to(page, step)
            page.locator(".chip").first.click()
            page.locator("#heads [role=radio]").nth(4 * block + 1).click()
            row = maps[block, 0, 1]
            code = np.abs(row).max() * 0.51 / 127 if step == "dattention" else 0.5 / 4095
            np.testing.assert_allclose(on_patches(page), row[0, 1:], rtol=5.1e-3, atol=atol + code)
    go_to(page, "tokens")
    lengths = np.linalg.norm(seen.values["(embed)"][0], axis=-1)
    np.testing.assert_allclose(on_patches(page), lengths[1:], **THREE)
    go_to(page, "rollout")
    rollout = probe.attention_rollout(seen.attention)[0, 0, 1:]
    np.testing.assert_allclose(on_patches(page), rollout, rtol=0, atol=6e-4 + 0.5 / 4095)
    order = np.argsort(-seen.probabilities[0])[:3]
    assert list(guesses(page)) == [f"class {k}" for k in order]
