"""Decides whether the page can compute a model itself, and packs the model for it."""

from math import prod

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_numpy
from tinyvit.functional.patches import as_pair
from tinyvit.probe.explorer.packing import layout, pack

ACTIVATIONS = "gelu", "gelu_tanh"  # those of page/vit.js
MAX_PARAMETERS = 150_000          # 0.7 MB of the page
MAX_MULTIPLICATIONS = 12_000_000  # of a forward: about 50 ms with its backward
MAX_PIXELS = 4096                 # that can be drawn on, and stand in a link


def why_not_live(model):
    """None, or the reason why the page can't compute this model itself, as a clause that follows "because"."""
    config, parameters = model.config, model.num_parameters()
    pixels, tokens = prod(as_pair(config.img_size)), 1 + prod(config.grid)
    multiplications = tokens * parameters + 2 * config.depth * tokens * tokens * config.embed_dim
    refused = {
        "it computes in bfloat16, which browsers don't have": model.precision == "bfloat16",
        f"its activation is {config.activation}, and the page computes {' and '.join(ACTIVATIONS)}":
            config.activation not in ACTIVATIONS,
        f"it has {parameters:,} parameters, and the page has room for {MAX_PARAMETERS:,}": parameters > MAX_PARAMETERS,
        f"its images have {pixels:,} pixels, and the page has room for {MAX_PIXELS:,}": pixels > MAX_PIXELS,
        f"a forward takes {multiplications / 1e6:.0f} million multiplications, and a page answers at once to "
        f"{MAX_MULTIPLICATIONS / 1e6:.0f} million": multiplications > MAX_MULTIPLICATIONS,
    }  # fmt: skip
    return next((reason for reason, holds in refused.items() if holds), None)


def live_model(model, mean, std):
    """The model for the page's `vit`, with the mean and standard deviation that normalise drawn pixels.

    The parameters, and positions that aren't learned, go into it as float32; positions by row and column as those of
    the patches that they give.
    """
    arrays = {name: to_numpy(array).astype("<f4") for name, array in model.state_dict().items()}
    if model.config.positions == "learned_2d":
        arrays["pos_embed"], _ = F.grid_positions(arrays.pop("pos_embed_x"), arrays.pop("pos_embed_y"))
    channels = model.config.in_chans
    mean, std = (np.broadcast_to(np.asarray(x, "float64").reshape(-1), channels).tolist() for x in (mean, std))
    return {"weights": pack(arrays), "layout": layout(arrays), "mean": mean, "std": std}
