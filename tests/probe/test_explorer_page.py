"""The page in Chromium: every control, and that the page shows what the model computed."""

import numpy as np
import pytest
from reading import STEPS, go_to, on_patches, slide, value, values

from tinyvit import probe

pytestmark = pytest.mark.browser

N = 16
SHARE = {"rtol": 0, "atol": 6e-4 + 0.5 / 4095}   # tenths of a percent
DIGITS = {"rtol": 5.1e-3, "atol": 1e-30}         # three


def same(found, expected, **tolerance):
    np.testing.assert_allclose(found, expected, **tolerance)


def lengths(tokens):
    return np.linalg.norm(tokens, axis=-1)


# -- which image, which step ------------------------------------------------------------------------------------------


def test_each_image_has_its_own_logits_probabilities_loss_and_gradient(page, made, expect):
    _, traces, labels = made
    for b, (trace, label) in enumerate(zip(traces, labels)):
        card = page.locator(".image").nth(b)
        card.click()
        go_to(page, "logits")
        expect(page.locator("#logits-bars tr.current th")).to_contain_text(f"class {label}true class")
        numbers = page.locator("#logits-bars tbody .number")
        same(values(numbers)[0::2], trace.logits[0], **DIGITS)
        same(values(numbers)[1::2], trace.probabilities[0], **SHARE)
        prediction = trace.logits[0].argmax()
        expect(page.locator("#logits-bars tbody tr").nth(prediction)).to_contain_text("prediction")
        verdict = "✓ recognised" if prediction == label else f"✗ taken for class {prediction}"
        expect(card).to_contain_text(f"class {label}")
        expect(card).to_contain_text(f"image {b}, {verdict}")
        go_to(page, "loss")
        same(values(page.locator("#loss-bars tbody .number")), trace.probabilities[0] - np.eye(10)[label], **DIGITS)
        text = page.locator("#loss-value").inner_text()
        same(value(text.split(" = ")[2].split(",")[0]), trace.loss, **DIGITS)
        assert text.endswith(f"for the true class class {label}.")


def test_every_step_shows_its_own_section_with_formulas_and_shapes(page, expect):
    for i, step in enumerate(STEPS):
        go_to(page, step)
        assert page.locator(".step:visible").evaluate_all("sections => sections.map(s => s.id)") == [f"step-{step}"]
        assert page.locator("nav [aria-current=step]").count() == 1
        expect(page.locator("nav button").nth(i)).to_have_attribute("aria-current", "step")
        section = page.locator(f"#step-{step}")
        expect(page.locator("#step-title")).to_have_text(section.get_attribute("data-title"))
        assert section.locator("math[display=block]").count() >= 1
        shapes = section.locator("[data-shape]").all_inner_texts()
        assert shapes and all(" = (" in shape and "undefined" not in shape for shape in shapes)


def test_shapes_are_the_models(page):
    cells = page.locator("[data-shape]").evaluate_all("all => all.map(cell => [cell.dataset.shape, cell.textContent])")
    shapes = dict(cells)
    assert shapes["N C·P·Q"] == "(N, C·P·Q) = (16, 4)"
    assert shapes["N+1 D"] == "(N+1, D) = (17, 24)"
    assert shapes["H N+1 N+1"] == "(H, N+1, N+1) = (4, 17, 17)"
    assert shapes["H N+1 d"] == "(H, N+1, d) = (4, 17, 6)"
    assert shapes["C height width"] == "(C, height, width) = (1, 8, 8)"
    assert shapes["K D"] == "(K, D) = (10, 24)"


def test_next_and_back_go_through_all_steps_and_end_at_their_ends(page, expect):
    forwards, backwards = page.get_by_role("button", name="Next →"), page.get_by_role("button", name="← Back")
    expect(backwards).to_be_disabled()
    chain = [step for step in STEPS if step != "rollout"]                  # which is no part of the computation
    for step in chain[1:]:
        forwards.click()
        expect(page.locator(f"#step-{step}")).to_be_visible()
        expect(page.locator("#step-title")).to_be_focused()
    expect(forwards).to_be_disabled()
    for step in chain[-2::-1]:
        backwards.click()
        expect(page.locator(f"#step-{step}")).to_be_visible()
    expect(backwards).to_be_disabled()
    for button, step in ((forwards, "mlp"), (backwards, "attention")):
        go_to(page, "rollout")
        button.click()
        expect(page.locator(f"#step-{step}")).to_be_visible()


# -- patches and tokens -----------------------------------------------------------------------------------------------


def pixels_of(image, patch):
    """The numbers of a patch, counted from 0, of an image (1, 8, 8)."""
    row, column = divmod(patch, 4)
    return image[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel()


def test_every_patch_shows_its_own_pixels_and_their_gradients(page, seen):
    for patch in range(N):
        page.locator("#patches .cell").nth(patch).click()
        same(values(page.locator("#enlarged td")), pixels_of(seen.images[0], patch), rtol=0, atol=5.1e-3)
    go_to(page, "dpixels")
    gradient = seen.gradients[""][1][0]
    for patch in range(N):
        page.locator("#patches .cell").nth(patch).click()
        same(values(page.locator("#dpixels-patch td")), pixels_of(gradient, patch), **DIGITS)
    same(on_patches(page), [lengths(pixels_of(gradient, patch)) for patch in range(N)], **DIGITS)


@pytest.mark.parametrize(("step", "field"), [("tokens", "values"), ("dtokens", "gradients")])
def test_the_slider_goes_through_the_lengths_of_tokens_and_gradients_before_and_after_every_block(
    page, made, seen, step, field
):
    go_to(page, step)
    paths = ["(embed)", "blocks.0", "blocks.1", "blocks.2"]
    for depth, path in enumerate(paths):
        slide(page, step, depth)
        found = getattr(seen, field)[path]
        expected = lengths(found[0] if field == "values" else found[0][0])
        same(on_patches(page), expected[1:], **DIGITS)
        said = "before the first block" if depth == 0 else f"after block {depth - 1}"
        assert page.locator(f"#{step}-slider output").inner_text() == said
        same(value(page.locator(".chip .value").first.inner_text()), expected[0], **DIGITS)
        assert said in page.locator("#readout").inner_text()
    if step == "dtokens":
        flow = [lengths((seen.probabilities - np.eye(10)[made.labels[0]])[0])]
        flow += [np.linalg.norm(seen.gradients[path][0]) for path in reversed(paths)]
        flow += [np.linalg.norm(seen.gradients[""][1])]
        same(values(page.locator("#flow-bars tbody .number")), flow, **DIGITS)


# -- attention --------------------------------------------------------------------------------------------------------


def test_every_head_of_every_block_shows_what_the_chosen_token_attends_to(page, seen, expect):
    go_to(page, "attention")
    page.locator("#patches .cell").nth(5).click()
    for block in range(3):
        for head in range(4):
            page.get_by_role("radio", name=f"block {block}, head {head}").click()
            row = seen.attention[block, 0, head, 6]
            same(on_patches(page), row[1:], **SHARE)
            same(value(page.locator(".chip .value").first.inner_text()), row[0], **SHARE)
            expect(page.locator("#readout")).to_contain_text(f"block {block}, head {head}")
            assert page.locator("#heads [aria-checked=true]").count() == 1


def test_hovering_over_a_patch_shows_what_it_attends_to_and_leaving_it_goes_back(page, seen):
    go_to(page, "attention")
    attention = seen.attention[2, 0, 0]
    page.locator("#patches .cell").nth(3).click()
    page.mouse.move(0, 0)
    for patch in range(N):
        page.locator("#patches .cell").nth(patch).hover()
        same(on_patches(page), attention[patch + 1, 1:], **SHARE)
        assert page.locator("#readout").inner_text().startswith(f"Patch {patch + 1} (row ")
    page.locator(".chip", has_text="Class token").hover()
    same(on_patches(page), attention[0, 1:], **SHARE)
    page.locator(".chip", has_text="Mean").hover()
    same(on_patches(page), attention[1:, 1:].mean(0), **SHARE)
    page.mouse.move(0, 0)
    same(on_patches(page), attention[4, 1:], **SHARE)
    same(values(page.locator("#largest .number")), np.sort(attention[4])[:-6:-1], **SHARE)


def test_the_gradient_of_every_heads_attention_is_shown(page, seen):
    go_to(page, "dattention")
    page.locator(".chip", has_text="Class token").click()
    for block in range(3):
        for head in range(4):
            name = f"block {block}, head {head}"
            page.locator("#heads").get_by_role("radio", name=name).click()
            gradient = seen.attention_gradients[block, 0, head]
            same(on_patches(page), gradient[0, 1:], **DIGITS)


def test_the_rollout_runs_through_the_requested_number_of_blocks(page, seen):
    go_to(page, "rollout")
    page.locator("#patches .cell").nth(9).click()
    for depth in (1, 2, 3):
        slide(page, "rollout", depth)
        same(on_patches(page), probe.attention_rollout(seen.attention[:depth])[0, 10, 1:], **SHARE)
        assert page.locator("#rollout-slider output").inner_text() == f"{depth} of 3 blocks"
