"""The gradients of the whole Vision Transformer."""

import numpy as np

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.block import block
from tinyvit.exercises.topics.block_backward import block_backward
from tinyvit.exercises.topics.embed import embed_backward
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.linear import linear_backward
from tinyvit.exercises.topics.patches import patchify_backward
from tinyvit.exercises.topics.vit import enter, parameters_of_block, vit


@exercise(forward=vit)
def vit_backward(dy, images, parameters, depth, num_heads, eps):
    """The gradients of `vit`: of the images, and of all parameters by their names.

      dy          (B, K), the gradient of the logits
      images      (B, C, H, W)
      parameters  a dict of arrays: cls_token (1, 1, D), pos_embed (1, N+1, D), patch_embed.proj.weight (D, C, P, P),
                  patch_embed.proj.bias (D,); for each i from 0 to depth − 1 blocks.i.norm1.weight (D,),
                  blocks.i.norm1.bias (D,), blocks.i.attn.qkv.weight (3D, D), blocks.i.attn.qkv.bias (3D,),
                  blocks.i.attn.proj.weight (D, D), blocks.i.attn.proj.bias (D,), blocks.i.norm2.weight (D,),
                  blocks.i.norm2.bias (D,), blocks.i.mlp.fc1.weight (M, D), blocks.i.mlp.fc1.bias (M,),
                  blocks.i.mlp.fc2.weight (D, M), blocks.i.mlp.fc2.bias (D,); norm.weight (D,), norm.bias (D,),
                  head.weight (K, D), head.bias (K,)
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
