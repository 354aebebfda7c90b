"""Ten shapes of ViTs with random weights that together cover all that a layout must handle."""

import json
from dataclasses import replace

import numpy as np
from safetensors.numpy import load_file, save_file
from strategies import redrawn

from tinyvit import ViT, ViTConfig
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import Weights

SMALL = ViTConfig(img_size=12, patch_size=4, num_classes=5, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2.0)
SHAPES = {
    "one_patch_one_channel": replace(SMALL, img_size=5, patch_size=5, in_chans=1, num_classes=2, embed_dim=6, depth=1,
                                     num_heads=1),
    "rectangles": replace(SMALL, img_size=(8, 15), patch_size=(4, 3), depth=3, num_heads=4, mlp_ratio=1.75,
                          norm_eps=1e-12),
    "no_qkv_bias": replace(SMALL, num_heads=6, qkv_bias=False, norm_eps=1e-5),
    "mean_pooling": replace(SMALL, img_size=(8, 12), global_pool="avg"),
    "tanh_gelu": replace(SMALL, patch_size=6, embed_dim=12, activation="gelu_tanh"),
    "twelve_layers": replace(SMALL, depth=12, mlp_ratio=4.0),
    "hidden_layer_in_the_head": replace(SMALL, head_hidden=7, activation="gelu_tanh"),
    "learned_2d_positions": replace(SMALL, img_size=(6, 9), patch_size=3, positions="learned_2d", in_chans=2),
    "sincos_positions_no_classes": replace(SMALL, img_size=(12, 4), positions="sincos_2d", num_classes=0),
    "no_positions": replace(SMALL, positions="none", embed_dim=18, num_heads=2, mlp_ratio=2.5),
}  # fmt: skip


def random_weights(config, dtype="float64", seed=0, std=0.2):
    """Weights of this shape, every parameter drawn from N(0, std²)."""
    model = redrawn(ViT(config, dtype=dtype), seed, std)
    classes = tuple(f"kind {i}" for i in range(config.num_classes))
    mean = tuple(0.3 + 0.1 * i for i in range(config.in_chans))
    prepared = Preprocessing(classes, config.in_chans, as_pair(config.img_size), mean, mean, crop=None)
    return Weights(config, model.state_dict(), prepared)


def save_folder(folder, tensors, about, preprocessor=None):
    """Save a folder in Hugging Face's layout."""
    folder.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, folder / "model.safetensors",
              {"format": "pt"})  # fmt: skip
    (folder / "config.json").write_text(json.dumps(about))
    if preprocessor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def load_folder(folder):
    """(arrays, config.json) of such a folder."""
    return load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
