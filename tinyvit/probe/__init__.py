"""Looking inside a trained model: its values and gradients, attention, and learned weights.

    trace         every value, gradient and attention probability, by path
    maps          where each head looks
    rollout       what reaches the output from each patch, for all classes or for one
    distance      how far each head looks
    positions     how alike the positions of patches are
    filters       what the first layer looks for in a patch
    spectrum      how fine the features are, by depth
    norms         how large activations and gradients are, by layer
    receptive     how far around its place a feature sees
    feature_maps  what the channels of a convolutional network make of an image
    equivariance  whether features move with the image
    mistakes      the images that it gets most wrong
    segments      the patches that a head picks out, and how well they cover an object

Each question has a function that returns arrays, and one that draws them as a matplotlib Figure. Arrays of tokens
begin with `prefix` tokens, usually the class token alone, and attention is (L, B, H, T, T), as `Trace` says.
"""

from tinyvit.probe.distance import draw_attention_distance, mean_attention_distance, uniform_attention_distance
from tinyvit.probe.equivariance import equivariance_error
from tinyvit.probe.feature_maps import draw_feature_maps, feature_maps, most_varied, trunk_of
from tinyvit.probe.filters import FilterComponents, draw_filter_components, filter_components, patch_filters
from tinyvit.probe.maps import attention_maps, draw_attention_maps, draw_head_maps, head_maps, over_patches
from tinyvit.probe.mistakes import Mistakes, draw_most_wrong, most_wrong
from tinyvit.probe.norms import Norms, draw_norms, norms_by_layer
from tinyvit.probe.positions import draw_position_similarity, patch_positions, position_similarity
from tinyvit.probe.receptive import draw_receptive_fields, effective_receptive_field, receptive_box, receptive_side
from tinyvit.probe.rollout import attention_rollout, draw_class_attention, draw_rollout, gradient_weighted_attention
from tinyvit.probe.segments import attention_segments, draw_segments, overlap
from tinyvit.probe.spectrum import draw_spectrum, fourier_spectrum
from tinyvit.probe.trace import Trace, trace
