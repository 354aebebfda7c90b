"""A Vision Transformer small enough for a sheet of paper, forwards and backwards.

    python -m tinyvit.models.worked_example

An image of 4×4 pixels in four patches, and a class token, four numbers each; one attention head whose projections are
identities; a residual connection, a layer norm, and a head for two classes. Every number that the textbooks print on
the way to attention is there, and then the way on to the loss, and all the way back. Derived step by step in
notebooks/05.
"""

import numpy as np

from tinyvit import functional as F

IMAGE = np.array([[[[0.8, -0.3, 1.1, 0.2], [0.5, 1.2, -0.4, 0.7], [-0.2, 0.9, 0.5, -0.7], [0.6, -0.1, 1.0, 0.3]]]])
PATCHES = F.patchify.reference(IMAGE, 2)[0]                                   # (1, 4, 4)  loads no kernels
CLS_TOKEN = np.array([[[0.1, 0.1, 0.1, 0.1]]])
POSITIONS = np.array([[[0, 0, 0, 0], [0.1, 0, -0.1, 0], [0, 0.1, 0, -0.1], [-0.1, 0, 0.1, 0], [0, -0.1, 0, 0.1]]])
NORM_WEIGHT, NORM_BIAS = np.ones(4), np.zeros(4)
HEAD_WEIGHT = np.array([[0.5, -0.2, 0.1, 0.3], [-0.3, 0.4, 0.2, -0.1]])  # one row a class
HEAD_BIAS = np.zeros(2)
LABEL = np.array([0])
NAMES = ["class", "patch 1", "patch 2", "patch 3", "patch 4"]
ROWS = ["row 1", "row 2", "row 3", "row 4"]


def forward(patches=PATCHES, cls_token=CLS_TOKEN, positions=POSITIONS, norm_weight=NORM_WEIGHT, norm_bias=NORM_BIAS,
            head_weight=HEAD_WEIGHT, head_bias=HEAD_BIAS):  # fmt: skip
    """From patches to the loss; returns the loss and every intermediate by name, caches included."""
    tokens, c_token = F.prepend_token(patches, cls_token)                     # (1, 5, 4)
    z0, c_positions = F.add_positions(tokens, positions)                      # (1, 5, 4)
    q = k = v = z0[:, None]                                                   # (1, 1, 5, 4)  identity projections
    heads, c_attention = F.attention(q, k, v)
    z1 = z0 + heads[:, 0]                                                     # (1, 5, 4)
    normed, c_norm = F.layernorm(z1, norm_weight, norm_bias)
    feature, c_pool = F.pool_token(normed)                                    # (1, 4)
    logits, c_head = F.linear(feature, head_weight, head_bias)                # (1, 2)
    loss, c_loss = F.cross_entropy(logits, LABEL)
    return loss, locals()


def backward(steps):
    """From the loss to every input, the forward read from the bottom up; returns every gradient by name."""
    dlogits = F.cross_entropy_backward(1.0, steps["c_loss"])
    dfeature, dhead_weight, dhead_bias = F.linear_backward(dlogits, steps["c_head"])
    dnormed = F.pool_token_backward(dfeature, steps["c_pool"])
    dz1, dnorm_weight, dnorm_bias = F.layernorm_backward(dnormed, steps["c_norm"])
    dheads = dz1[:, None]                                                     # the residual sends dz1 both ways
    dq, dk, dv = F.attention_backward(dheads, steps["c_attention"])
    dz0 = dz1 + (dq + dk + dv)[:, 0]                                          # z0 was query, key, value and residual
    dtokens, dpositions = F.add_positions_backward(dz0, steps["c_positions"])
    dpatches, dcls_token = F.prepend_token_backward(dtokens, steps["c_token"])
    return locals()


def main():
    loss, steps = forward()
    gradients = backward(steps)
    cache = steps["c_attention"]
    scores = (cache.q @ cache.k.mT * cache.scale)[0, 0]
    probs = F.softmax(steps["logits"])[0]

    print("FORWARDS\n")
    show("the image", IMAGE[0, 0], ROWS)
    show("tokens z0: class token in front of the patches, plus positions", steps["z0"][0], NAMES)
    show("scores: z0 z0ᵀ / √4, one row per query", scores, NAMES)
    show("attention: softmax of each row", cache.probs[0, 0], NAMES)
    show("heads: attention · z0", steps["heads"][0, 0], NAMES)
    show("z1: z0 + heads", steps["z1"][0], NAMES)
    show("layer norm of z1", steps["normed"][0], NAMES)
    show("feature: the class token", steps["feature"], ["class"])
    show("logits: feature · Wᵀ", steps["logits"], ["class"])
    show("probabilities: softmax of the logits", probs, ["class"])
    print(f"loss: −log of the probability of class {LABEL[0]} = {loss:.4f}\n")

    print("BACKWARDS\n")
    show("dlogits: probabilities − target", gradients["dlogits"], ["class"])
    show("dW: dlogitsᵀ · feature", gradients["dhead_weight"], ["class 0", "class 1"])
    show("dfeature: dlogits · W", gradients["dfeature"], ["class"])
    show("dz1: through the layer norm", gradients["dz1"][0], NAMES)
    show("dq: through the scores to the queries", gradients["dq"][0, 0], NAMES)
    show("dk: through the scores to the keys", gradients["dk"][0, 0], NAMES)
    show("dv: through the attention to the values", gradients["dv"][0, 0], NAMES)
    show("dz0: dz1 + dq + dk + dv", gradients["dz0"][0], NAMES)
    show("dpatches", gradients["dpatches"][0], NAMES[1:])
    show("dimage: the patches' gradients in their places", F.unpatchify(gradients["dpatches"], 2)[0][0, 0], ROWS)
    show("dclass token", gradients["dcls_token"][0], NAMES[:1])
    print("the gradient of the positions is dz0: each was added to its token")


def show(title, rows, names):
    print(title)
    for name, row in zip(names, rows):
        print(f"  {name:<8}" + "".join(f"{value:9.4f}" for value in row))
    print()


if __name__ == "__main__":
    main()
