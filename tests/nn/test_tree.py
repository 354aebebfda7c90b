from hypothesis import given
from strategies import vits

from tinyvit import ViT, ViTConfig, nn


@given(model=vits())
def test_every_array_of_every_module_is_shown_with_its_shape(model):
    text = str(model)
    for module in [module for _, module in model.named_modules()]:
        assert type(module).__name__ in text
        for name, value in vars(module).items():
            if isinstance(value, (nn.Parameter, nn.Buffer)):
                assert f"{name} {value.shape}" in text


def test_equal_blocks_are_folded_so_that_depth_adds_no_lines():
    shallow, deep = (str(ViT(ViTConfig(depth=depth))) for depth in (2, 12))
    assert len(shallow.splitlines()) == len(deep.splitlines()) < 30
    assert "blocks.0 to blocks.11: Block  12 × 297,024 parameters" in deep


def test_a_block_unlike_its_neighbours_stands_alone():
    model = ViT(ViTConfig(depth=4), device="meta")
    model.blocks[2].mlp = nn.Mlp(192, 100)
    text = str(model)
    assert "blocks.0 to blocks.1: Block  2 ×" in text and "blocks.2: Block\n" in text and "blocks.3: Block\n" in text


def test_the_tree_of_a_layer_reads_like_this():
    assert str(nn.Mlp(2, 3)) == (
        "Mlp  17 parameters\n"
        "  fc1: Linear  weight (3, 2), bias (3,)\n"
        "  drop1: Dropout\n"
        "  fc2: Linear  weight (2, 3), bias (2,)\n"
        "  drop2: Dropout"
    )
    assert repr(nn.Mlp(2, 3)) == "Mlp(17 parameters)"
