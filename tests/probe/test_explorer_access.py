"""The page in Chromium: by keyboard alone, on a phone, and in light and dark mode."""

import numpy as np
import pytest
from pages import page_of
from reading import STEPS, go_to, on_patches, pixels_of, steps_of
from strategies import redrawn

from tinyvit import ViT, ViTConfig

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 375, "height": 667}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
LARGE = ViTConfig(32, 4, num_classes=10, embed_dim=96, depth=9, num_heads=12)
LARGE_PATCHES = ViTConfig(32, 8, num_classes=20, embed_dim=32, depth=2, num_heads=2)


@pytest.fixture(scope="module")
def pages(made):
    def html(config):
        names = [f"a longer name {k}" for k in range(config.num_classes)]
        return page_of(redrawn(ViT(config)), 2, classes=names)[0].html

    return {"small": made.html, "large": html(LARGE), "large patches": html(LARGE_PATCHES)}


# -- keyboard ---------------------------------------------------------------------------------------------------------

# The stops of the Tab key: every visible, enabled control; in a radio group, the checked one.
STOPS = """() => {
    const names = (element) => element.id || element.ariaLabel || element.name || element.textContent.trim();
    const stops = (element) =>
        element.role === "radio" ? element.tabIndex === 0 : element.type !== "radio" || element.checked;
    const controls = [...document.querySelectorAll("button:enabled, input, select, [role=application]")];
    return controls.filter((element) => element.checkVisibility() && stops(element)).map(names);
}"""
FOCUSED = """() => {
    const { activeElement: element } = document;
    if (element === document.body) return null;
    const shown = element.closest(".image") ?? element;
    const { outlineStyle, outlineWidth } = getComputedStyle(shown);
    const name = element.id || element.ariaLabel || element.name || element.textContent.trim();
    return [name, outlineStyle !== "none" && parseFloat(outlineWidth) >= 2];
}"""


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS)
def test_the_tab_key_stops_at_every_control_in_its_order_and_shows_where_it_is(page, step):
    go_to(page, step)
    expected = page.evaluate(STOPS)
    assert len(expected) >= 16
    page.locator("h1").evaluate("heading => { heading.tabIndex = -1; heading.focus(); }")  # in front of all of them
    found = []
    for _ in expected:
        page.keyboard.press("Tab")
        name, outlined = page.evaluate(FOCUSED)
        assert outlined, name
        found.append(name)
    assert found == expected


def test_the_whole_page_is_used_by_keyboard_alone(page, made, expect):
    keys = page.keyboard
    expect(page.locator(".image")).to_have_count(4)                       # it is drawn
    keys.press("Tab")                                                     # the images
    keys.press("ArrowRight")
    expect(page.locator(".image input").nth(1)).to_be_checked()
    trace = made.traces[1]
    for _ in range(4):                                                    # to the fourth step
        keys.press("Tab")
    keys.press("Enter")
    expect(page.locator("#step-attention")).to_be_visible()
    focus(page, "#patches [tabindex='0']")
    attention = trace.attention[2, 0, 0]
    np.testing.assert_allclose(on_patches(page), attention[0, 1:], rtol=0, atol=6.3e-4)  # until a patch is chosen
    row, column = 0, 0
    for key, move in (("ArrowRight", (0, 1)), ("ArrowDown", (1, 0)), ("ArrowDown", (1, 0)), ("ArrowLeft", (0, -1)),
                      ("ArrowLeft", (0, 0)), ("ArrowUp", (-1, 0)), ("End", (0, 3)), ("ArrowRight", (0, 0)),
                      ("Home", (0, -3))):  # fmt: skip
        keys.press(key)
        row, column = row + move[0], column + move[1]
        token = 1 + 4 * row + column
        assert page.locator("#patches .cell:focus").get_attribute("aria-checked") == "true"
        np.testing.assert_allclose(on_patches(page), attention[token, 1:], rtol=0, atol=6.3e-4)
    focus(page, "#heads [tabindex='0']")
    for key, block, head in (("ArrowUp", 1, 0), ("ArrowRight", 1, 1), ("End", 1, 3), ("ArrowUp", 0, 3), ("Home", 0, 0)):
        keys.press(key)
        np.testing.assert_allclose(on_patches(page), trace.attention[block, 0, head, token, 1:], rtol=0, atol=6.3e-4)
    focus(page, "#show-numbers")
    keys.press("Space")
    expect(page.locator("#patches .value").first).to_be_hidden()
    focus(page, "#strength")
    keys.press("Home")
    assert page.locator("#strength").input_value() == "0"
    focus(page, ".chip")
    keys.press("Enter")
    np.testing.assert_allclose(on_patches(page), trace.attention[0, 0, 0, 0, 1:], rtol=0, atol=6.3e-4)
    focus(page, "#next")
    keys.press("Enter")
    expect(page.locator("#step-mlp")).to_be_visible()
    focus(page, "#aside button")
    keys.press("Enter")
    expect(page.locator("#step-rollout")).to_be_visible()
    focus(page, "#rollout-slider input")
    keys.press("ArrowLeft")
    expect(page.locator("#rollout-slider output")).to_have_text("2 of 3 blocks")
    assert page.locator("#rollout-slider input").get_attribute("aria-valuetext") == "2 of 3 blocks"


def focus(page, selector):
    """Press Tab until the element has the focus."""
    for _ in range(80):
        if page.locator(selector).first.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the Tab key doesn't reach {selector}")


def test_every_control_has_a_name_and_every_group_one(page):
    for step in STEPS:
        go_to(page, step)
        unnamed = page.locator("button, input, select, [role=radiogroup], [role=application]").evaluate_all(
            "all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"
        )
        assert unnamed == []


# -- a phone ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("width", [375, 320])
@pytest.mark.parametrize("name", ["small", "large", "large patches"])
def test_on_a_phone_no_step_is_wider_than_the_screen_and_no_text_smaller_than_it_can_be_read(
    browse, pages, name, width
):
    page = browse(pages[name], **{**PHONE, "viewport": {"width": width, "height": 667}})
    for step in steps_of(page):
        go_to(page, step)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("visualViewport.scale") == 1 and page.evaluate("innerWidth") == width
        assert page.locator(".wide:visible").evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
        small = page.evaluate("""() => [...document.querySelectorAll("main *")].filter((element) =>
            element.checkVisibility() && !element.closest("math, #patches, option") &&
            [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) &&
            parseFloat(getComputedStyle(element).fontSize) < 12).map((element) => element.outerHTML)""")
        assert small == []


@pytest.mark.parametrize("name", ["small", "large"])
def test_touch_targets_are_large_enough(browse, pages, name):
    page = browse(pages[name], **PHONE)
    for step in steps_of(page):
        go_to(page, step)
        sizes = page.locator("button:visible, label:visible").evaluate_all(
            "all => all.map(e => e.getBoundingClientRect()).map(({ width, height }) => [width, height])"
        )
        assert np.min(sizes) >= 24  # pixels: WCAG 2.2, success criterion 2.5.8


def test_on_a_phone_the_picture_is_in_view_while_a_head_is_chosen_and_shows_it(browse, made, expect):
    page = browse(made.html, **PHONE)
    page.locator("nav button").nth(STEPS.index("attention")).tap()         # a phone has no mouse that points at a patch
    page.locator("#patches .cell").nth(10).tap()
    head = page.locator("#heads [role=radio]").nth(1)
    head.tap()
    np.testing.assert_allclose(on_patches(page), made.traces[0].attention[0, 0, 1, 11, 1:], rtol=0, atol=6.3e-4)
    expect(page.locator("#stage")).to_be_in_viewport(ratio=1)
    expect(head).to_be_in_viewport(ratio=1)
    stage, chosen = page.locator("#stage").bounding_box(), head.bounding_box()
    assert stage["x"] + stage["width"] <= chosen["x"]                      # beside the picture, and so is the switch
    assert stage["y"] <= chosen["y"] and chosen["y"] + chosen["height"] <= stage["y"] + stage["height"]


# -- without scripts --------------------------------------------------------------------------------------------------


def test_without_scripts_the_page_says_what_it_needs_and_shows_no_dead_controls(browse, made, expect):
    page = browse(made.html, java_script_enabled=False)
    assert page.locator("body").inner_text().split("\n\n") == [
        "Inside a Vision Transformer",
        "This page computes what it shows: please allow JavaScript. It loads nothing from anywhere.",
    ]
    expect(page.locator("main")).to_be_hidden()


# -- light and dark ---------------------------------------------------------------------------------------------------

# [text, contrast] of every text that is visible, by WCAG 2.2's relative luminance; colours with an opacity are laid
# over what is behind them. Of a disabled button nobody has to read the text.
CONTRASTS = """() => {
    const parse = (text) => {
        const [red, green, blue, opacity = 1] = text.match(/[\\d.]+/g).map(Number);
        return { colour: [red, green, blue], opacity };
    };
    const over = (front, back) => front.colour.map((value, i) => value * front.opacity + back[i] * (1 - front.opacity));
    const behind = (element) => {
        if (element === null) return [255, 255, 255];
        const { backgroundColor } = getComputedStyle(element);
        const own = parse(backgroundColor);
        return own.opacity === 1 ? own.colour : over(own, behind(element.parentElement));
    };
    const luminance = (colour) => {
        const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = colour.map((value) => linear(value / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const elements = [...document.querySelectorAll("body *")];
    return elements.filter((element) => element.checkVisibility() && !element.disabled &&
        [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())).map((element) => {
        const back = behind(element), front = over(parse(getComputedStyle(element).color), back);
        const [dark, light] = [luminance(front), luminance(back)].sort((a, b) => a - b);
        return [element.textContent.trim().slice(0, 40), (light + 0.05) / (dark + 0.05)];
    });
}"""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
def test_all_text_has_a_contrast_of_at_least_4_and_a_half(browse, made, scheme):
    page = browse(made.html, color_scheme=scheme, reduced_motion="reduce")
    for step in STEPS:
        go_to(page, step)
        found = page.evaluate(CONTRASTS)
        assert len(found) > 40
        assert [pair for pair in found if pair[1] < 4.5] == []


# The page learns of the change before a frame's callbacks run; by the next frame it has been redrawn.
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


def test_dark_is_dark_and_light_is_light(browse, made):
    page = browse(made.html, color_scheme="light")
    go_to(page, "dpixels")
    lightness, middle = {}, {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(DRAWN)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness[scheme] = np.mean([int(number) for number in colour[4:-1].split(", ")])
        ramp = page.locator("#dpixels-0 .numbers")
        middle[scheme] = np.mean(pixels_of(ramp))
    assert lightness["light"] > 240 and lightness["dark"] < 30
    assert middle["dark"] < middle["light"]  # the pictures are drawn again for it
