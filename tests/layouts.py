"""Shared by the tests of all layouts: an example, and the comparison of weights."""

import json

import numpy as np
from hypothesis import strategies as st
from strategies import images_for

from tinyvit import ViT, ViTConfig
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.interop import Weights
from tinyvit.interop.huggingface import rename_to_transformers_4
from tinyvit.interop.mappings import mapping_for
from tinyvit.interop.names import to_ours

CONFIG = ViTConfig(img_size=8, patch_size=4, num_classes=3, embed_dim=192, depth=1, num_heads=3, mlp_ratio=0.25)
HUGGINGFACE = mapping_for("huggingface", "vit")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


def example(config=CONFIG):
    """Freshly initialised weights of this shape."""
    classes = ("a", "b", "c")[: config.num_classes]
    prepared = Preprocessing(classes, 3, (8, 8), (0.5, 0.4, 0.3), (0.25, 0.5, 0.75), resample="bilinear", crop=None)
    return Weights(config, ViT(config).state_dict(), prepared)


def through_json(value):
    """A dict after a round trip through JSON."""
    return json.loads(json.dumps(value))


def assert_equal_state(got, expected):
    """Assert that both have the same names and bit-equal arrays."""
    assert got.keys() == expected.keys()
    for name, array in got.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name, strict=True)


def logits_of(weights):
    """The logits of the model with these weights for two images, in the weights' dtype."""
    model = ViT(weights.config, dtype=str(weights.state["cls_token"].dtype))
    model.load_state_dict(weights.state)
    return model(images_for(model, 0, 2))[0]


def under_our_names(layout, arrays, config):
    """Arrays by the names of Transformers 4 or 5, as those of the model's parameters, by our names."""
    theirs, _ = rename_to_transformers_4(layout, {name: np.asarray(array) for name, array in arrays.items()})
    return to_ours(theirs, config, layout.parts(config), layout.model)
