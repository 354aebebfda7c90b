"""The numbers that the explorer shows for one image."""

import numpy as np

from tinyvit.functional.patches import as_pair
from tinyvit.models import architecture_name
from tinyvit.probe.explorer.packing import share_codes, signed_codes
from tinyvit.probe.rollout import attention_rollout
from tinyvit.probe.trace import trace


def numbers(model, image, label, picture):
    """(loss, arrays): the values that `model` computes from a normalised image (C, H, W), and their gradients.

    picture is how the image is shown, uint8 (C, H, W). With T = N+1 tokens, the arrays are:

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
    stream = seen.residual_stream[:, 0]
    dstream = np.stack([seen.gradients[path][0][0] for path in seen.layers])
    dlogits, _ = seen.gradients[""]
    dpixels = seen.gradients[""][1][0]
    attention, dattention = seen.attention[:, 0], seen.attention_gradients[:, 0]
    for array in (seen.logits, stream, attention, dstream, dattention, dpixels):
        if not np.isfinite(array).all():
            raise ValueError("the model computes numbers that are NaN or infinite, which can't be shown")
    rollout = np.stack([attention_rollout(seen.attention[:depth])[0] for depth in range(1, len(attention) + 1)])

    arrays = {"picture": as_rgb(picture), "pixels": as_float32(image), "dpixels": as_float32(dpixels)}
    for name, tokens in (("stream", stream), ("dstream", dstream)):
        arrays[name], arrays[f"{name}_largest"] = signed_codes(tokens, 2)
        arrays[f"{name}_length"] = as_float32(np.linalg.norm(tokens, axis=-1))
    arrays["attention"] = share_codes(attention)
    arrays["dattention"], arrays["dattention_largest"] = signed_codes(dattention, 2)
    arrays["rollout"] = share_codes(rollout)
    arrays["logits"], arrays["dlogits"] = as_float32(seen.logits[0]), as_float32(dlogits[0])
    arrays["probabilities"] = as_float32(seen.probabilities[0])
    return seen.loss, arrays


def as_float32(x):
    return np.asarray(x).astype("<f4")


def as_rgb(picture):
    """A picture uint8 (C, H, W) as red, green and blue (H, W, 3); what doesn't have three channels is shown in grey."""
    if len(picture) != 3:
        picture = np.repeat(picture.mean(0, keepdims=True).round().astype("uint8"), 3, axis=0)
    return np.ascontiguousarray(picture.transpose(1, 2, 0))


def facts(model):
    """The configuration of a model, and sizes that follow from it.

    Raises ValueError for any architecture but the plain Vision Transformer, whose steps the page explains.
    """
    config = model.config
    if architecture_name(model) != "vit":
        raise ValueError(f"the page explains the steps of a plain Vision Transformer, and a {type(model).__name__} has "
                         "others; leave out --html for its pictures")  # fmt: skip
    sizes = {"img_size": as_pair(config.img_size), "patch_size": as_pair(config.patch_size), "grid": model.grid}
    more = {"head_dim": config.head_dim, "mlp_hidden": config.mlp_hidden, "parameters": model.num_parameters()}
    return vars(config) | sizes | more
