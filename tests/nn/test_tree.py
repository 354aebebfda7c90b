import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from strategies import vits

from tinyvit import Context, ViT, ViTConfig, nn, optim
from tinyvit.training import train_step
from tinyvit.training.meeting import mixes_samples


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
        "Mlp  17 parameters, no memory\n"
        "  fc1: Linear  weight (3, 2), bias (3,)\n"
        "  drop1: Dropout\n"
        "  fc2: Linear  weight (2, 3), bias (2,)\n"
        "  drop2: Dropout"
    )
    assert repr(nn.Mlp(2, 3)) == "Mlp(17 parameters)"
    assert repr(nn.Linear(2, 3)) == "Linear(weight (3, 2), bias (3,))" and repr(nn.Dropout(0.1)) == "Dropout(rate=0.1)"
    assert "attn: Attention  num_heads=3, head_dim=4\n" in str(nn.Block(12, 3, 24))


def test_a_tree_says_whether_there_is_memory_and_of_which_kind():
    layer = nn.Linear(2, 3)
    assert str(layer) == "Linear  weight (3, 2), bias (3,)  9 parameters, no memory"
    assert repr(layer.weight) == "Parameter('(unnamed)', (3, 2), no memory)"
    layer.materialize(dtype="float64", device="cpu").freeze("weight")
    assert str(layer) == "Linear  weight (3, 2), bias (3,)  9 parameters, float64 on cpu"
    assert repr(layer.weight) == "Parameter('weight', (3, 2), float64, frozen)"
    assert str(nn.Identity()) == "Identity  0 parameters"


@given(model=vits())
def test_a_cache_prints_as_the_tree_that_it_mirrors_with_shapes_and_no_numbers(model):
    _, cache = model(np.ones((2, *model.image_shape)))
    text = repr(cache)
    assert text == nn.tree(cache) and text.startswith("ViTCache") and "array" not in text
    (line,) = [line for line in text.splitlines() if "fc1: " in line and "blocks" not in line][:1]
    block = cache.blocks[0]
    assert line.strip() == f"fc1: LinearCache  x {block.mlp.fc1.x.shape}, weight {block.mlp.fc1.weight.shape}"
    assert all(repr(part) == nn.tree(part) for part in (block, block.mlp, block.attn, cache.embed, cache.encode))


def test_looking_at_a_recomputed_cache_computes_nothing():
    model = ViT(ViTConfig(8, 4, embed_dim=12, num_heads=3, depth=2))
    _, cache = model(np.ones((1, 3, 8, 8), "float32"), Context(recompute=True))
    model.blocks[0].forward = model.blocks[1].forward = None
    assert "blocks.0 to blocks.1: RecomputedCache  inputs.0 (1, 5, 12)\n" in repr(cache)
    assert repr(cache.blocks[0]) == "RecomputedCache  inputs.0 (1, 5, 12)"


def test_an_optimizer_and_an_average_say_their_settings_and_their_model():
    model = ViT(ViTConfig(8, 4, embed_dim=12, num_heads=3, depth=2, num_classes=3))
    count = f"{model.num_parameters():,}"
    assert repr(optim.SGD(model, 0.1, momentum=0.9)) == (
        f"SGD(lr=0.1, weight_decay=0.0, momentum=0.9, nesterov=False, t=0) of ViT, {count} parameters"
    )
    assert repr(optim.EMA(model)) == f"EMA(decay=0.999, warmup=True, t=0) of ViT, {count} parameters"


# -- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.ones((5, 4)), nn.init.zeros, 0.0, nn.Identity()], ids=type)
def test_a_parameter_is_not_replaced_by_an_array(value):
    layer = nn.Linear(4, 5).materialize()
    before = layer.weight
    with pytest.raises(TypeError, match=r"Linear.weight is a Parameter \(5, 4\), got \w+; .* assign to weight.data"):
        layer.weight = value
    assert layer.weight is before
    layer.weight, layer.bias = nn.Parameter((5, 4), nn.init.ones), None


@pytest.mark.parametrize("value", [None, np.ones((5, 4)), [nn.Identity()], len], ids=type)
def test_a_module_is_replaced_by_a_module_only(value):
    block = nn.Block(12, 3, 24)
    with pytest.raises(TypeError, match=r"Block.mlp is a Mlp; expected a module in its place, .*; nn.Identity\(\)"):
        block.mlp = value
    block.mlp = nn.Identity()


@pytest.mark.parametrize(
    "hidden", [{"a": nn.Linear(2, 2)}, [nn.Parameter((3,), nn.init.zeros)], [[nn.Linear(2, 2)]], {nn.Identity()},
               (nn.Identity(), nn.Buffer((3,), nn.init.zeros))], ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_would_never_be_found_and_trained_is_refused(hidden):
    module = nn.Linear(2, 2)
    module.more = hidden
    with pytest.raises(TypeError, match=f"Linear.more: parameters in a {type(hidden).__name__} are not found"):
        module.materialize()
    module.more = [nn.Linear(2, 2), "a word", 3]
    module.materialize()


def test_an_array_is_asked_for_by_name_and_never_taken_for_an_object():
    layer = nn.Linear(2, 3).materialize()
    for call in (np.asarray, lambda p: np.ones((4, 3)) @ p, lambda p: layer.bias.assign(layer.weight.data, p)):
        with pytest.raises(TypeError, match="weight is a Parameter; its array is .data"):
            call(layer.weight)


@pytest.mark.parametrize(("shape", "init"), [(3, nn.init.zeros), ((3,), np.zeros(3)), (np.zeros(3), None)])
def test_a_parameter_is_made_of_a_shape_and_a_function(shape, init):
    with pytest.raises(TypeError, match=r"Parameter: expected a shape such as \(3, 4\) and a function of `nn.init`"):
        nn.Parameter(shape, init)


@pytest.mark.parametrize("result", [None, np.ones((2, 3)), (1, 2, 3)], ids=type)
def test_a_forward_that_gives_no_cache_is_named(result):
    class Forgetful(nn.Module):
        def forward(self, x, ctx=None):
            return result

    with pytest.raises(TypeError, match=r"^Forgetful.forward: expected \(output, cache\), got "):
        Forgetful()(np.ones(3))


@pytest.mark.parametrize("state", [None, [1], nn.Linear(2, 3)], ids=type)
def test_a_state_is_arrays_by_name(state):
    with pytest.raises(TypeError, match=r"expected arrays by name, as state_dict\(\) gives them, got "):
        nn.Linear(2, 3).materialize().load_state_dict(state)


def test_a_device_in_the_place_of_a_dtype_is_recognised():
    with pytest.raises(ValueError, match="unknown dtype 'cuda'; .*; a device goes by name, device='cuda'"):
        nn.Linear(2, 3).materialize().to("cuda")


def test_a_part_without_memory_says_what_to_call_and_the_call_helps():
    model = ViT(ViTConfig(8, 4, embed_dim=12, num_heads=3, depth=2))
    model.blocks.append(nn.Block(12, 3, 24))
    for call in (model.to, lambda: model(np.ones((1, 3, 8, 8), "float32"))):
        with pytest.raises(ValueError, match=r"call materialize\(\) on the module .*, and to\(\) on a model that"):
            call()
    model.blocks[-1].materialize()
    optim.AdamW(model.to()).step()


# -- walks ----------------------------------------------------------------------------------------------------------


def assert_complete(walk, model):
    assert walk.root is model
    assert list(walk.parameters) == [parameter for _, parameter in model.named_parameters()]
    assert list(walk.modules) == [module for _, module in model.named_modules()]


@given(model=vits())
def test_a_walk_finds_what_has_a_name(model):
    assert_complete(model.walk(), model)


def test_steps_share_a_walk_while_nothing_in_the_tree_is_replaced():
    model = small_vit()
    optimizer, average, walk = optim.AdamW(model), optim.EMA(model), model.walk()
    for trainable in (True, False):
        model.blocks[0].norm1.weight.trainable = trainable
        train_step(model, optimizer, np.zeros((2, 1, 4, 4), "float32"), np.array([0, 1]), Context(True))
        average.update()
    assert model.walk() is walk


def small_vit():
    return ViT(ViTConfig(img_size=4, patch_size=2, in_chans=1, embed_dim=8, depth=3, num_heads=2))


REPLACED = {
    "a module": lambda model: setattr(model.blocks[1], "mlp", nn.Mlp(8, 5)),
    "a parameter": lambda model: setattr(model.blocks[1].norm1, "weight", nn.Parameter((8,), nn.init.ones)),
    "a parameter by none": lambda model: setattr(model.blocks[1].attn.qkv, "bias", None),
    "an item of a list": lambda model: model.blocks.__setitem__(1, nn.Mlp(8, 5)),
    "more items of a list": lambda model: model.blocks.append(nn.Mlp(8, 5)),
    "fewer items of a list": lambda model: model.blocks.pop(),
    "another order": lambda model: model.blocks.reverse(),
    "another list": lambda model: setattr(model.encode, "blocks", model.blocks[:2]),
    "a module more": lambda model: setattr(model.blocks[0].mlp, "gate", nn.Linear(8, 8)),
    "a module less": lambda model: delattr(model.blocks[0].mlp, "drop1"),
    "behind the module's back": lambda model: vars(model.blocks[0]).update(mlp=nn.Mlp(8, 5)),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_in_a_tree_is_in_the_next_walk(name):
    model = small_vit()
    walk = model.walk()
    REPLACED[name](model)
    assert not walk.is_current()
    assert_complete(model.walk(), model)
    assert model.walk() is model.walk()


def test_a_module_that_is_switched_is_seen_without_another_walk():
    model = small_vit()
    ctx, walk = Context(True), model.walk()
    assert not mixes_samples(model, ctx)
    type(model.blocks[0].mlp).mixes_samples, before = True, type(model.blocks[0].mlp).mixes_samples
    try:
        assert mixes_samples(model, ctx) and model.walk() is walk
    finally:
        type(model.blocks[0].mlp).mixes_samples = before


def test_parts_and_copies_have_walks_of_their_own():
    model = small_vit()
    walk = model.walk()
    assert_complete(model.blocks[1].walk(), model.blocks[1])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_complete(other.walk(), other)
        assert other.walk() is not walk and other.is_in(other.storage) and not other.is_in(model.storage)
    assert_complete(model.walk(), model)
