"""What the explorer shows of one image."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit.functional.patches import as_pair
from tinyvit.probe.explorer.packing import share_codes, signed_codes
from tinyvit.probe.rollout import attention_rollout
from tinyvit.probe.trace import trace


class Numbers(NamedTuple):
    """Of one image: the loss −log p of its label, and the arrays that the page reads."""

    loss: float
    arrays: dict[str, Any]


def numbers(model, image, label, picture):
    """What `model` computes of an image (C, H, W), normalised, and how its loss depends on all of that: `Numbers`.

    picture is what is shown of the image, uint8 (C, H, W). With T = N+1 tokens, the arrays are:

        picture                     uint8    (H, W, 3)
        pixels, dpixels             float32  (C, H, W)     what the model reads
        stream, dstream             int8     (L+1, T, D)   zℓ: the tokens, and after each block
        stream_largest, …           float32  (L+1)         see `packing.signed_codes`
        stream_length, …            float32  (L+1, T)      ‖zℓ‖ of each token
        attention                   uint16   (L, H, T, T)  see `packing.share_codes`
        dattention                  int8     (L, H, T, T)
        dattention_largest          float32  (L, H)
        rollout                     uint16   (L, T, T)     through the first 1, 2, … L blocks
        logits, probabilities, dlogits  float32  (K)

    d… is the gradient of the loss of this image alone. ValueError if any number is not finite.
    """
    seen = trace(model, image[None], [label])
    block_paths = [block.path for block in model.blocks]
    stream = np.stack([seen.values[path][0] for path in (model.embed.path, *block_paths)])
    dstream = np.stack([seen.gradients[path][0][0] for path in (model.embed.path, *block_paths)])
    dlogits, _ = seen.gradients[model.head.path]
    dpixels = seen.gradients[""][1][0]
    attention, dattention = seen.attention[:, 0], seen.attention_gradients[:, 0]
    for array in (seen.logits, stream, attention, dstream, dattention, dpixels):
        if not np.isfinite(array).all():
            raise ValueError("the model computes numbers that are NaN or infinite, which can't be shown")
    rollout = np.stack([attention_rollout(seen.attention[:depth])[0] for depth in range(1, len(attention) + 1)])

    arrays = {"picture": shown(picture), "pixels": exact(image), "dpixels": exact(dpixels)}
    for name, tokens in (("stream", stream), ("dstream", dstream)):
        arrays[name], arrays[f"{name}_largest"] = signed_codes(tokens, 2)
        arrays[f"{name}_length"] = exact(np.linalg.norm(tokens, axis=-1))
    arrays["attention"] = share_codes(attention)
    arrays["dattention"], arrays["dattention_largest"] = signed_codes(dattention, 2)
    arrays["rollout"] = share_codes(rollout)
    arrays["logits"], arrays["dlogits"] = exact(seen.logits[0]), exact(dlogits[0])
    arrays["probabilities"] = exact(seen.probabilities[0])
    return Numbers(seen.loss, arrays)


def exact(x):
    return np.asarray(x).astype("<f4")


def shown(picture):
    """A picture uint8 (C, H, W) as red, green and blue (H, W, 3); what doesn't have three channels is shown in grey."""
    if len(picture) != 3:
        picture = np.repeat(picture.mean(0, keepdims=True).round().astype("uint8"), 3, axis=0)
    return np.ascontiguousarray(picture.transpose(1, 2, 0))


def facts(model):
    """What the page says of the model, and by what its formulas' shapes become numbers."""
    config = model.config
    return {
        "size": as_pair(config.img_size),
        "patch": as_pair(config.patch_size),
        "grid": config.grid,
        "channels": config.in_chans,
        "width": config.embed_dim,
        "depth": config.depth,
        "heads": config.num_heads,
        "headWidth": config.head_dim,
        "hidden": config.mlp_hidden,
        "classes": config.num_classes,
        "pool": config.global_pool,
        "positions": config.positions,
        "headHidden": config.head_hidden,
        "activation": config.activation,
        "parameters": model.num_parameters(),
    }
