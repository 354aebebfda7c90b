"""Group norm and standardised filters in float32, centred twice: the mean of large numbers is rounded itself."""

from tinyvit.functional.batchnorm import check_channels
from tinyvit.functional.groupnorm import (
    centred_filters,
    check_groups,
    group_norm,
    standardize_weight,
    standardize_weight_original,
)


def group_norm_float32(x, weight, bias, num_groups, eps=1e-5):
    check_channels("group_norm", x, weight, bias)
    check_groups(x, num_groups)
    groups = x.reshape(len(x), num_groups, -1)                                 # (B, G, C/G · …)
    centred = groups - groups.mean(-1, keepdims=True)
    return group_norm.reference(centred.reshape(x.shape), weight, bias, num_groups, eps)


def centred_before(operation):
    """A kernel that takes the mean of each filter away before the reference implementation does."""
    def standardize(weight, *eps):
        return operation.reference(centred_filters(operation.__name__, weight).reshape(weight.shape), *eps)

    return standardize


group_norm.register(("numpy", "float32"), group_norm_float32)
for operation in (standardize_weight, standardize_weight_original):
    for library in ("numpy", "cupy"):
        operation.register((library, "float32"), centred_before(operation))
