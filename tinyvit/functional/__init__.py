"""The mathematics: pure functions in pairs, a forward and its backward.

A forward returns its result and a cache; its backward takes the gradient of the result and that cache, and
returns the gradients of the forward's differentiable array arguments, in their order (one alone bare, several as
a tuple). Arrays received are never written to.
"""

from tinyvit.functional.attention import (
    attention,
    attention_backward,
    attention_dropout,
    attention_dropout_backward,
)
from tinyvit.functional.batchnorm import (
    batch_norm,
    batch_norm_backward,
    batch_norm_running,
    batch_norm_running_backward,
)
from tinyvit.functional.cast import cast
from tinyvit.functional.conditions import embed_labels, embed_labels_backward, timestep_embedding
from tinyvit.functional.contrastive import (
    contrastive_loss,
    contrastive_loss_backward,
    similarity,
    similarity_backward,
)
from tinyvit.functional.conv import conv2d, conv2d_backward
from tinyvit.functional.conv_transpose import conv_transpose2d, conv_transpose2d_backward
from tinyvit.functional.cross_entropy import cross_entropy, cross_entropy_backward
from tinyvit.functional.diffusion import (
    add_noise,
    add_noise_backward,
    denoise,
    guided_noise,
    noise_levels,
    step_back,
    variance_back,
)
from tinyvit.functional.dino import dino_loss, dino_loss_backward, l2_normalise, l2_normalise_backward
from tinyvit.functional.distillation import distillation, distillation_backward
from tinyvit.functional.dot_products import dot_products, dot_products_backward
from tinyvit.functional.dropout import drop_path, drop_path_backward, dropout, dropout_backward
from tinyvit.functional.embedding import embedding, embedding_backward
from tinyvit.functional.gathering import gather_batch, gather_batch_backward
from tinyvit.functional.gelu import (
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
    quick_gelu,
    quick_gelu_backward,
)
from tinyvit.functional.groupnorm import (
    group_norm,
    group_norm_backward,
    standardize_weight,
    standardize_weight_backward,
    standardize_weight_original,
    standardize_weight_original_backward,
)
from tinyvit.functional.heads import merge_heads, merge_heads_backward, split_heads, split_heads_backward
from tinyvit.functional.interpolation import resize_bilinear, resize_bilinear_backward
from tinyvit.functional.layer_scale import layer_scale, layer_scale_backward
from tinyvit.functional.layernorm import layernorm, layernorm_backward, rmsnorm, rmsnorm_backward
from tinyvit.functional.linear import linear, linear_backward
from tinyvit.functional.masking import (
    mean_squared_error,
    mean_squared_error_backward,
    place_tokens,
    place_tokens_backward,
    replace_tokens,
    replace_tokens_backward,
)
from tinyvit.functional.merge_patches import merge_patches, merge_patches_backward
from tinyvit.functional.modulation import add_gated, add_gated_backward, modulate, modulate_backward
from tinyvit.functional.packing import packed_attention, packed_attention_backward
from tinyvit.functional.pad import zero_pad2d, zero_pad2d_backward
from tinyvit.functional.patches import patchify, patchify_backward, unpatchify, unpatchify_backward
from tinyvit.functional.pixel_cross_entropy import pixel_cross_entropy, pixel_cross_entropy_backward
from tinyvit.functional.pooling import (
    avg_pool2d,
    avg_pool2d_backward,
    global_avg_pool2d,
    global_avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
)
from tinyvit.functional.positions import (
    add_positions,
    add_positions_backward,
    grid_positions,
    grid_positions_backward,
    resize_positions,
    resize_positions_backward,
    sincos_1d,
    sincos_2d,
    sincos_3d,
)
from tinyvit.functional.relative_bias import relative_bias, relative_bias_backward
from tinyvit.functional.relu import relu, relu_backward
from tinyvit.functional.rope import rope, rope_backward, rope_halves, rope_halves_backward
from tinyvit.functional.scale_channels import scale_channels, scale_channels_backward
from tinyvit.functional.shifted_windows import (
    from_windows,
    from_windows_backward,
    to_windows,
    to_windows_backward,
    window_masks,
)
from tinyvit.functional.sigmoid import sigmoid, sigmoid_backward, silu, silu_backward, swiglu, swiglu_backward
from tinyvit.functional.softmax import softmax, softmax_backward
from tinyvit.functional.tanh import tanh, tanh_backward
from tinyvit.functional.tiled_attention import tiled_attention, tiled_attention_backward
from tinyvit.functional.tokens import (
    first_tokens,
    first_tokens_backward,
    insert_tokens,
    insert_tokens_backward,
    pool_mean,
    pool_mean_backward,
    pool_token,
    pool_token_backward,
    prepend_token,
    prepend_token_backward,
    take_tokens,
    take_tokens_backward,
)
from tinyvit.functional.tubelets import (
    from_tubelets,
    from_tubelets_backward,
    join_frames,
    join_frames_backward,
    split_frames,
    split_frames_backward,
    tubelets,
    tubelets_backward,
)
from tinyvit.functional.variational_bound import variational_bound, variational_bound_backward
from tinyvit.levels import reference
