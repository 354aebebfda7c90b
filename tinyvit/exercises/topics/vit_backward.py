"""The gradients of the whole Vision Transformer."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.block import block
from tinyvit.exercises.topics.block_backward import block_backward
from tinyvit.exercises.topics.embed import embed_backward
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.linear import linear_backward
from tinyvit.exercises.topics.patches import patchify_backward
from tinyvit.exercises.topics.vit import DIGITS, as_trained, enter, parameters_of_block, vit


@exercise(forward=vit, traps=(Case(DIGITS, as_trained),))
def vit_backward(dy, images, parameters, depth, num_heads, eps):
    """The gradients of `vit`: of the images, and of all parameters by their names.

      dy          (B, K), the gradient of the logits
      images      (B, C, H, W)
      parameters  a dict of arrays: cls_token (1, 1, D), pos_embed (1, N+1, D), patch_embed.proj.weight (D, C, P, P)
                  and .bias (D,), those of block i as blocks.i.norm1.weight, …, norm.weight and .bias, head.weight (K,
                  D) and .bias
      depth       how many blocks there are
      num_heads   of each block
      eps         ε of all layer norms

    returns
      dimages    (B, C, H, W)
      gradients  a dict: the gradient of each parameter, by its name
    """
    p, g = parameters, dict.fromkeys(parameters)
    patches, x = enter(images, p)
    inputs = []                                                                # of each block
    for i in range(depth):
        inputs.append(x)
        x = block(x, parameters_of_block(p, i), num_heads, eps)
    normed = layernorm(x, p["norm.weight"], p["norm.bias"], eps)

    dnormed = np.zeros_like(normed)
    dnormed[:, 0], g["head.weight"], g["head.bias"] = linear_backward(dy, normed[:, 0], p["head.weight"])
    dx, g["norm.weight"], g["norm.bias"] = layernorm_backward(dnormed, x, p["norm.weight"], eps)
    for i in reversed(range(depth)):
        dx, of_block = block_backward(dx, inputs[i], parameters_of_block(p, i), num_heads, eps)
        g |= {f"blocks.{i}.{name}": array for name, array in of_block.items()}
    kernel = p["patch_embed.proj.weight"]
    dpatches, dkernel, *others = embed_backward(dx, patches, kernel.reshape(len(kernel), -1))
    g["patch_embed.proj.weight"] = dkernel.reshape(kernel.shape)
    g |= zip(("patch_embed.proj.bias", "cls_token", "pos_embed"), others)
    return patchify_backward(dpatches, kernel.shape[2:], images.shape[2:]), g


lesson(vit_backward, """
Package: tinyvit.models.vit.ViT.forward, tinyvit.models.vit.ViT.backward

Hints:
  The backward of a block needs what entered that block. What has to be kept on the way forward?
  linear's backward → zeros but for the class token → norm's backward → blocks, the last first → embed's → patchify's.
  dz_L: row 0 is d(logits) W, the others 0, then back through LN at z_L. dz_{i} = block′ᵢ(dz_{i+1}) at z_i.
      embed_backward gives the last five gradients; the kernel's has to be reshaped to (D, C, P, Q).

Steps:
  head      vit_backward.dnormed            dy W_head in the class token's row, zeros in the others, (B, N+1, D)
  norm      layernorm_backward.returned[0]  head through the last layer norm
  blocks    block_backward.returned[0]      the gradient of what entered block {}
  embed     vit_backward.dpatches           the gradient of the patches
  patchify  vit_backward.returned[0]        of the images

Places:
  the last norm: layernorm_backward 0
  the head: linear_backward 0

Holds:
  gradients["head.bias"]: it should be dy, added up over the images
    `gradients["head.bias"] - dy.sum(0)`
  gradients["pos_embed"]: its rows should add up to 0, since the last norm takes away what is added to all of a token:
    a residual's gradient, or a norm's path through its mean, is missing or wrong
    `gradients["pos_embed"].sum(-1)`

Mistakes:
  the head's gradient goes to all tokens
    Only the class token was read: all others get zeros.
    `dx, g["norm.weight"]` → `dnormed[:] = dnormed[:, :1]; dx, g["norm.weight"]`
  the head's gradient goes to the last token
    The class token comes first.
    `dnormed[:, 0]` → `dnormed[:, -1]`
  the last norm is forgotten on the way back
    Between the head and the blocks lies a layer norm.
    `    for i in reversed` → `    dx = dnormed⏎    for i in reversed`
  the blocks' backwards run in the order of the forward
    The backward is the forward read from the bottom up: the last block comes first.
    `reversed(range(depth))` → `range(depth)`
  the blocks' backwards are taken at their outputs
    A block's backward needs what went into the block: keep x before each.
    `inputs[i]` → `[*inputs, x][i + 1]`
  all blocks' backwards are taken at the first one's input
    A block's backward needs what went into that block: keep x before each.
    `inputs[i]` → `inputs[0]`
  the last token is taken for the class token
    The class token comes first: the gradients of the patches are those from the second token on.
    embed_backward: `dy[:, 1:]` → `dy[:, :-1]`
  the broadcast positions are not summed
    Every image got the same positions: their gradients add up over the batch.
    embed_backward: `, dy.sum(0, keepdims=True)` → `, dy`
  the broadcast class token is not summed
    Every image got the same class token: its gradients add up over the batch.
    embed_backward: `dy[:, :1].sum(0, keepdims=True)` → `dy[:, :1]`
  means in place of sums over the batch
    A parameter that all images share gets the sum.
    embed_backward: `sum(0` → `mean(0`
  the class token's gradient is summed over all tokens
    Only the first token of an image is the class token.
    embed_backward: `dy[:, :1].sum(0, keepdims=True)` → `dy.sum((0, 1), keepdims=True)`
  the class token counts in the patch embedding's bias
    It wasn't projected: sum over the patches only.
    embed_backward: `return dpatches, dweight, dbias` → `return dpatches, dweight, dy.sum((0, 1))`
  ε is forgotten
    All layer norms added it to the variance.
    `eps = 0`
""")
