"""The gradients of the whole Vision Transformer."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import block, block_backward, vit
from tinyvit.exercises.topics.vit import final_norm, of_block, with_class_token
from tinyvit.models.vit import ViT


def inputs(random, **sizes):
    arguments = vit.inputs(random, **sizes)
    return random.standard_normal((sizes["B"], sizes["K"])), *arguments


def as_trained(random):
    arguments = vit.as_trained(random)
    return random.standard_normal((len(arguments[0]), 10)), *arguments


def right(dy, images, parameters, depth, num_heads, eps):
    model = vit.module(images, parameters, depth, num_heads, eps)
    model.zero_grad()
    dimages = model.backward(dy, model(images)[1])
    return dimages, {name: parameter.grad for name, parameter in model.named_parameters()}


# -- the steps, and other ways to take them -------------------------------------------------------------------------


def to_class_token(df, shape):
    dx = np.zeros(shape)
    dx[:, 0] = df
    return dx


def to_all_tokens(df, shape):
    return np.broadcast_to(df[:, None], shape)


def to_last_token(df, shape):
    dx = np.zeros(shape)
    dx[:, -1] = df
    return dx


def norm_backward(dx, x, p, eps):
    return F.layernorm_backward(dx, F.layernorm(x, p["norm.weight"], p["norm.bias"], eps)[1])


def without_norm(dx, x, p, eps):
    return dx, *norm_backward(dx, x, p, eps)[1:]


def norm_without_mean_terms(dx, x, p, eps):
    _, cache = F.layernorm(x, p["norm.weight"], p["norm.bias"], eps)
    return dx * p["norm.weight"] * cache.rstd, *norm_backward(dx, x, p, eps)[1:]


def as_entered(xs, i):
    return xs[i]


def written(
    dy, images, p, depth, num_heads, eps, read=to_class_token, norm=norm_backward, order=reversed, entered=as_entered,
    patches_of=lambda dx: dx[:, 1:],
):  # fmt: skip
    """dimages and the gradients, with a switch for each step.

    entered      the input at which the backward of block i is taken, from those of all blocks and their result
    patches_of   what comes back to the embedded patches
    """
    kernel = p["patch_embed.proj.weight"]
    patches, _ = F.patchify(images, kernel.shape[2:])
    tokens, c_embed = F.linear(patches, kernel.reshape(len(kernel), -1), p["patch_embed.proj.bias"])
    xs = [with_class_token(tokens, p)]
    for i in range(depth):
        xs.append(block.forward(xs[-1], of_block(p, i), num_heads, eps))
    feature = final_norm(xs[-1], p, eps)[:, 0]
    df, dhead, dhead_bias = F.linear_backward(dy, F.linear(feature, p["head.weight"], p["head.bias"])[1])
    dx, dnorm, dnorm_bias = norm(read(df, xs[-1].shape), xs[-1], p, eps)
    gradients = {"head.weight": dhead, "head.bias": dhead_bias, "norm.weight": dnorm, "norm.bias": dnorm_bias}
    for i in order(range(depth)):
        dx, of_one = block_backward.written(dx, entered(xs, i), of_block(p, i), num_heads, eps)
        gradients |= {f"blocks.{i}.{name}": array for name, array in of_one.items()}
    gradients |= {"pos_embed": dx.sum(0, keepdims=True), "cls_token": dx[:, :1].sum(0, keepdims=True)}
    dpatches, dkernel, dbias = F.linear_backward(patches_of(dx), c_embed)
    gradients |= {"patch_embed.proj.weight": dkernel.reshape(kernel.shape), "patch_embed.proj.bias": dbias}
    return F.unpatchify(dpatches, kernel.shape[2:], images.shape[2:])[0], gradients


BACKWARD = Exercise(
    "vit_backward",
    "The gradients of `vit`: of the images, and of all parameters by their names.",
    {"dy": "(B, K), the gradient of the logits", **vit.ARGUMENTS},
    {"dimages": "(B, C, H, W)", "gradients": "a dict: the gradient of each parameter, by its name"},
    right=right,
    shown=(ViT.forward, ViT.backward),
    inputs=inputs,
    sizes=vit.SIZES,
    equal=vit.EQUAL,
    traps=(Case(vit.DIGITS, as_trained),),
    written=written,
)
EXERCISES = (BACKWARD,)

BACKWARD.variant(
    "the head's gradient goes to all tokens",
    "Only the class token was read: all others get zeros.",
    read=to_all_tokens,
)
BACKWARD.variant("the head's gradient goes to the last token", "The class token comes first.", read=to_last_token)
BACKWARD.variant(
    "the last norm is forgotten on the way back",
    "Between the head and the blocks lies a layer norm.",
    norm=without_norm,
)
BACKWARD.variant(
    "the 1/N terms of the last norm are missing",
    "Mean and standard deviation depend on the whole row; see layernorm_backward.",
    norm=norm_without_mean_terms,
)
BACKWARD.variant(
    "the blocks' backwards run in the order of the forward",
    "The backward is the forward read from the bottom up: the last block comes first.",
    order=iter,
)
BACKWARD.variant(
    "the blocks' backwards are taken at their outputs",
    "A block's backward needs what went into the block: keep x before each.",
    entered=lambda xs, i: xs[i + 1],
)
BACKWARD.variant(
    "all blocks' backwards are taken at the first one's input",
    "A block's backward needs what went into that block: keep x before each.",
    entered=lambda xs, i: xs[0],
)
BACKWARD.variant(
    "the last token is taken for the class token",
    "The class token comes first: the gradients of the patches are those from the second token on.",
    patches_of=lambda dx: dx[:, :-1],
)


def of_tokens(*arguments):
    """The gradient of the tokens that enter the first block, sample by sample, (B, N+1, D)."""
    dy, images, *rest = arguments
    each = [right(dy[b : b + 1], images[b : b + 1], *rest)[1]["pos_embed"] for b in range(len(images))]
    return np.concatenate(each)


@BACKWARD.mistake(
    "the broadcast positions are not summed",
    "Every image got the same positions: their gradients add up over the batch.",
)
def positions_not_summed(*arguments):
    return {"gradients": {"pos_embed": of_tokens(*arguments)}}


@BACKWARD.mistake(
    "the broadcast class token is not summed",
    "Every image got the same class token: its gradients add up over the batch.",
)
def class_token_not_summed(*arguments):
    return {"gradients": {"cls_token": of_tokens(*arguments)[:, :1]}}


@BACKWARD.mistake("means in place of sums over the batch", "A parameter that all images share gets the sum.")
def means(*arguments):
    tokens = of_tokens(*arguments).mean(0, keepdims=True)
    return {"gradients": {"pos_embed": tokens, "cls_token": tokens[:, :1]}}


@BACKWARD.mistake(
    "the class token's gradient is summed over all tokens", "Only the first token of an image is the class token."
)
def class_token_of_all_tokens(*arguments):
    return {"gradients": {"cls_token": of_tokens(*arguments).sum((0, 1), keepdims=True)}}


@BACKWARD.mistake(
    "the class token counts in the patch embedding's bias", "It wasn't projected: sum over the patches only."
)
def bias_of_all_tokens(*arguments):
    return {"gradients": {"patch_embed.proj.bias": of_tokens(*arguments).sum((0, 1))}}


@BACKWARD.misreading("ε is forgotten", "All layer norms added it to the variance.")
def without_eps(dy, images, p, depth, num_heads, eps):
    return dy, images, p, depth, num_heads, 0.0
