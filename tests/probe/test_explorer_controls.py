"""The page in Chromium: its pictures and switches, and models of every kind."""

import numpy as np
import pytest
from pages import page_of
from reading import go_to, on_patches, pixels_of, steps_of, value, values
from strategies import redrawn

from tinyvit import ViT, ViTConfig, probe

pytestmark = pytest.mark.browser

BRIGHTEST = [252, 246, 190]
BOXES = """() => JSON.stringify([document.documentElement.scrollHeight, ...[
    ...document.querySelectorAll(".chip, #stage, #scale, #largest, #steps")
].filter((element) => !element.hidden).map((element) => {
    const around = element.closest(".look, main").getBoundingClientRect();
    const { x, y, width, height } = element.getBoundingClientRect();
    return [x, y - around.y, width, height].map(Math.round);
})])"""  # where everything is: on its side of the page, of which one stays in sight when it is scrolled


def test_the_picture_is_the_image_and_each_card_has_its_own(page, expect):
    random = np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype="uint8").reshape(4, 64)
    for b in range(4):
        card = page.locator(".image").nth(b)
        expect(card.locator("canvas")).to_have_js_property("width", 8)  # drawn once its numbers are unpacked
        card.click()
        expect(card.locator("input")).to_be_checked()
        for canvas in (page.locator("#picture"), card.locator("canvas")):
            assert pixels_of(canvas) == [[grey, grey, grey, 255] for grey in random[b]]


def test_the_heat_map_lies_over_the_image_brightest_where_most_is_taken(page, expect, seen):
    for name in ("#heat", "#scale"):
        expect(page.locator(name)).to_be_hidden()
    go_to(page, "attention")
    assert page.locator("#picture").bounding_box() == page.locator("#heat").bounding_box()
    row = seen.attention[2, 0, 0, 0, 1:]
    colours = np.array(pixels_of(page.locator("#heat")))
    assert abs(colours[row.argmax(), :3] - BRIGHTEST).max() <= 2  # stored with their opacity, they are rounded
    brightness = colours[:, :3].sum(1)
    for one in range(16):
        for other in range(16):
            if row[one] > row[other] + 0.01:
                assert brightness[one] > brightness[other]
    ends = np.reshape(pixels_of(page.locator("#scale canvas")), (16, 64, 4))[:, -1, :3]
    np.testing.assert_allclose(ends, 0.7 * np.array(BRIGHTEST) + 0.3 * np.linspace(255, 0, 16)[:, None], atol=1)
    assert page.locator("#scale span").first.inner_text() == "0 %"
    np.testing.assert_allclose(value(page.locator("#scale span").last.inner_text()), row.max(), atol=6.3e-4)


def test_small_maps_are_those_of_their_heads(page, seen):
    go_to(page, "attention")
    page.locator("#strength").fill("0")                                    # then they are the image
    picture = pixels_of(page.locator("#picture"))
    assert pixels_of(page.locator("#heads .thumbnail").last) == picture
    page.locator("#strength").fill("100")
    page.mouse.move(0, 0)                                                  # over no patch
    maps = page.locator("#heads .thumbnail")
    assert maps.count() == 12
    for i in range(12):
        row = seen.attention[i // 4, 0, i % 4, 0, 1:]
        colours = np.array(pixels_of(maps.nth(i))).reshape(4, 2, 4, 2, 4)[:, 0, :, 0]  # one pixel of each patch
        assert tuple(colours[np.unravel_index(row.argmax(), (4, 4))]) == (*BRIGHTEST, 255)


def test_gradients_are_orange_where_positive_and_blue_where_negative(page, seen):
    go_to(page, "dpixels")
    gradient = seen.gradients[""][1][0].ravel()
    colours = np.array(pixels_of(page.locator("#dpixels-0 .numbers")))
    strong = np.abs(gradient) > 0.1 * np.abs(gradient).max()
    assert 8 < strong.sum() < 64
    redder = colours[:, 0] > colours[:, 2]
    np.testing.assert_array_equal(redder[strong], gradient[strong] > 0)


@pytest.mark.full
@pytest.mark.parametrize("name", [
    "oblong images and patches, two channels", "the mean of the patches", "large patches of a large image",
])  # fmt: skip
def test_pointing_and_choosing_shift_nothing_under_the_pointer(browse, name):
    page = browse(page_of(redrawn(ViT(KINDS[name])), 2)[0].html, viewport={"width": 1280, "height": 720})
    for step in steps_of(page):
        go_to(page, step)
        boxes = set()
        for target in [*page.locator("#patches .cell").all()[::7], *page.locator(".chip").all()]:
            for act in ("pointerenter", "click"):
                target.dispatch_event(act, {"pointerType": "mouse"})
                boxes.add(page.evaluate(BOXES))
        assert len(boxes) == 1, step


def test_numbers_on_the_patches_come_and_go(page, seen):
    go_to(page, "attention")
    row = seen.attention[2, 0, 0, 0]
    numbers = page.locator("#patches .value")
    assert numbers.first.is_visible()
    np.testing.assert_allclose([float(text) for text in numbers.all_inner_texts()], 100 * row[1:], atol=0.063)
    page.get_by_label("Numbers on the patches").uncheck()
    assert numbers.first.is_hidden()
    page.get_by_label("Numbers on the patches").check()
    assert numbers.last.is_visible()


# -- models of every kind ---------------------------------------------------------------------------------------------


def kind(**fields):
    return ViTConfig(**{"img_size": 8, "patch_size": 4, "in_chans": 1, "num_classes": 3, "embed_dim": 16, "depth": 1,
                        "num_heads": 2, **fields})  # fmt: skip


KINDS = {
    "9 layers, 12 heads, 65 tokens": kind(img_size=32, in_chans=3, num_classes=10, embed_dim=96, depth=9, num_heads=12),
    "the mean of the patches": kind(global_pool="avg", positions="sincos_2d"),
    "rotary positions, one head": kind(positions="rope", num_heads=1),
    "no positions, a hidden layer in the head": kind(positions="none", head_hidden=5),
    "one patch": kind(patch_size=8),
    "oblong images and patches, two channels": kind(img_size=(6, 16), patch_size=(2, 8), in_chans=2),
    "large patches of a large image": kind(img_size=224, patch_size=32, in_chans=3),
    "a hundred classes": kind(num_classes=100),
}


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_every_step_of_every_kind_of_model_can_be_looked_at(browse, expect, name):
    config = KINDS[name]
    model = redrawn(ViT(config))
    made, images, labels = page_of(model, 2)
    page = browse(made.html)
    trace = probe.trace(model, images[1:2], labels[1:2])
    page.locator(".image").nth(1).click()
    for step in steps_of(page):
        go_to(page, step)
        expect(page.locator(f"#step-{step}")).to_be_visible()
        text = page.locator("main").inner_text()
        assert not [wrong for wrong in ("NaN", "undefined", "Infinity", "null", "[object") if wrong in text]
    go_to(page, "attention")
    assert page.locator("#heads [role=radio]").count() == config.depth * config.num_heads
    page.locator("#heads [role=radio]").first.click()
    page.locator("#patches .cell").last.click()
    np.testing.assert_allclose(on_patches(page), trace.attention[0, 0, 0, -1, 1:], rtol=0, atol=6.3e-4)
    page.get_by_role("button", name="Mean of all patches").click()
    np.testing.assert_allclose(on_patches(page), trace.attention[0, 0, 0, 1:, 1:].mean(0), rtol=0, atol=6.3e-4)
    expect(page.locator("#patches .cell")).to_have_count(config.grid[0] * config.grid[1])


def test_formulas_and_words_are_those_of_the_model(browse):
    def words(**fields):
        return browse(page_of(redrawn(ViT(kind(**fields))))[0].html).locator("#steps").evaluate("e => e.textContent")

    token, mean = words(), words(global_pool="avg", positions="rope", head_hidden=5, embed_dim=16)
    assert "the class token alone" in token and "all patch tokens" not in token
    assert "all patch tokens" in mean and "the class token alone" not in mean
    assert "told its place by a vector" in token and "told its place by a vector" not in mean
    assert "turned by angles" in mean and "turned by angles" not in token
    assert "tanh" in mean and "tanh" not in token and "(hidden, D) = (5, 16)" in mean


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1, 1e2, 1e3, 1e5])
def test_numbers_of_any_size_are_shown_correctly(browse, scale):
    model = redrawn(ViT(kind(num_classes=12)))
    for parameter in (model.head.weight, model.head.bias):
        parameter.data = scale * parameter.data
    made, images, _ = page_of(model)
    page = browse(made.html)
    go_to(page, "logits")
    found = values(page.locator("#logits-bars tbody .number:nth-last-child(2)"))
    np.testing.assert_allclose(found, probe.trace(model, images).logits[0], rtol=5.1e-3)


def test_names_are_shown_as_text_whatever_they_contain(browse):
    names = ["</script><b>bold</b>", "<img src=x onerror=alert(1)>", "{{SCRIPT}} & &lt;"]
    page = browse(page_of(redrawn(ViT(kind())), 1, classes=names, names=names[:1], title=names[0])[0].html)
    go_to(page, "logits")
    assert page.locator("b, img").count() == 0 and page.title() == names[0]
    rows = page.locator("#logits-bars tbody th").all_inner_texts()
    assert all(row.startswith(name) for row, name in zip(rows, names)) and len(rows) == 3
    assert names[0] in page.locator(".image").inner_text()
