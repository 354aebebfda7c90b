"""The protocol by which the rest of the package uses a model of images."""

from dataclasses import fields, is_dataclass, replace
from numbers import Integral

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_device
from tinyvit.functional.patches import as_pair
from tinyvit.nn.context import Context
from tinyvit.nn.foreign_names import MODULE
from tinyvit.nn.module import Module
from tinyvit.nn.stack import stack, stack_backward

# Fields that a model may have otherwise than the one whose weights it takes.
FREE = {
    "img_size", "num_classes", "head_hidden", "global_pool", "drop_rate", "attn_drop_rate", "drop_path_rate",
    "dynamic_img_size", "resize_positions", "head", "decoder_dim", "decoder_depth", "decoder_heads",
}  # fmt: skip
FOREIGN = MODULE | {  # of timm and Transformers
    **dict.fromkeys(("save", "save_pretrained"), "tinyvit.save(model, PATH) writes what tinyvit.load(PATH) reads"),
    **dict.fromkeys(("forward_features", "get_intermediate_layers"), "model.features(images, layer) gives them"),
    "reset_classifier": "model.reset_head(num_classes) gives it a new head",
}
HEADLESS = "the model has no head (num_classes is 0): it gives features"


class Architecture(Module):
    """A model that reads images (B, C, H, W) and goes through `parts()`.

    An architecture sets its sub-modules in `assemble(config)`, and defines `parts()` where these aren't its parts; all
    else has a default here. Caches mirror the modules: the cache of `block.attn` is `cache.attn`.

    config              a frozen dataclass with at least img_size and in_chans, and num_classes where it has classes
    seed, …, precision  as for `Module.materialize`; the device "meta" declares parameters without giving them memory

    num_prefix_tokens   tokens in front of those of the grid: class, distillation and register tokens
    first_token         what the first of them is called
    readers             what the head reads of them, as in "the class token has"
    grid                (rows, columns) of the tokens, or None if they have none
    pooling             how tokens become one vector where nothing else is asked for: "token" (the first) or "mean"
    preprocessing       how images become what the model reads, as `tinyvit.load` sets it, or None
    why_no_classes      why `predict` is refused, as `tinyvit.load` sets it for tasks that tell no classes apart
    task                that imported weights of this architecture are taken to be of
    """

    foreign = FOREIGN
    num_prefix_tokens = 0
    first_token, readers = "first token", "first token has"
    grid = None
    pooling = "mean"
    preprocessing = None
    why_no_classes = None
    task = "classification"

    def __init__(self, config=None, seed=0, dtype="float32", device="cpu", precision=None, **fields):
        if fields or not is_dataclass(config):
            name, given = type(self).__name__, ", ".join(f"{field}={value!r}" for field, value in fields.items())
            raise TypeError(f"expected a configuration, as in {name}({name}Config({given or '…'}))")
        self.config = config
        self.assemble(config)
        self.materialize(seed, dtype, device, precision)

    def parts(self):
        """[(name, module), …] in the order of the forward; each takes what the one before gives.

        By default these are the sub-modules, in the order of their definition.
        The first makes tokens or feature maps of the images, then come the layers, as many as `depth`, then what reads
        them, last the head. Freezing, layer-wise learning rates, features by layer and probing go by this list.
        """
        return [*self.children()]

    def towers(self):
        """[(a sample as it comes in, parts), …]: the parts, and further chains of parts where a model has any."""
        return [(np.zeros((1, *self.image_shape), "float32"), self.parts())]

    @property
    def depth(self):
        """How many of the parts are layers: all between the first and the last, unless an architecture says less."""
        return len(self.parts()) - 2

    @property
    def image_shape(self):
        """(C, H, W) of the images, or (C, T, H, W) of the videos."""
        return image_shape(self.config)

    @property
    def image_filters(self):
        """The filters (D, C, P, Q) that read the images, a Parameter, or None."""
        _, first = self.parts()[0]
        filters = (p for p in first.parameters() if p.ndim == 4 and p.shape[1] == self.image_shape[0])
        return next(filters, None)

    @property
    def image_layer(self):
        """The layer that reads the images, if the first part has one."""
        _, first = self.parts()[0]
        return first.image_layer

    def grid_of(self, images):
        """(rows, columns) of the tokens of these images, or None."""
        return self.grid

    def caches_of_parts(self, cache):
        """The caches of the parts, in their order, out of the cache of the model."""
        return cache

    def forward(self, images, ctx=None):
        return self.forward_parts(images, self.parts(), ctx)

    def backward(self, dy, cache):
        return self.backward_parts(dy, self.parts(), cache)

    def forward_parts(self, x, parts, ctx=None):
        """The output of the last of these parts, and a tuple of their caches."""
        if parts[:1] == self.parts()[:1]:
            ctx = self.context_of(x, ctx)
        return stack([part for _, part in parts], x, ctx)

    def backward_parts(self, dy, parts, caches):
        """The gradient with respect to the input of the first of these parts."""
        return stack_backward([part for _, part in parts], dy, caches)

    def context_of(self, images, ctx):
        """The context of a forward of these images through the parts."""
        return ctx or Context()

    def rows(self, images):
        """Slices of images that one forward takes: here all at a time, which have one size."""
        return [slice(0, len(images))]

    def forward_above(self, images, frozen, ctx=None):
        """The output, and the caches of all parts but the first `frozen`, which a backward won't reach.

        Buffers of the frozen parts stay as they are: their updates go with their caches.
        """
        parts, ctx = self.parts(), self.context_of(images, ctx)
        x, _ = self.forward_parts(images, parts[:frozen], replace(ctx, keep_caches=False))
        return self.forward_parts(x, parts[frozen:], ctx)

    def backward_above(self, dy, caches):
        """The backward of `forward_above`, which ends above the frozen parts."""
        return self.backward_parts(dy, self.parts()[-len(caches) :], caches)

    def forward_some(self, images, keep, ctx):
        """The output from a random share `keep` of the patches, and the cache for `backward_some`.

        Raises ValueError for an architecture that needs all patches.
        """
        raise ValueError(f"{type(self).__name__} needs all of its patches; optim.keep-patches must be 1, got {keep}")

    def features(self, images, layer=None, ctx=None):
        """The output of a layer: tokens (B, N, D) or feature maps (B, C, H, W).

        Layer 0 is the first part, −1 the last layer; None is what the head reads, (B, D).
        Raises ValueError for a layer that doesn't exist.
        """
        parts = self.parts()
        last = len(parts) - 1 if layer is None else self.layer_number(layer) + 1
        x, _ = self.forward_parts(images, parts[:last], replace(ctx or Context(), keep_caches=False))
        return x

    def layer_number(self, layer):
        """A layer counted from 0; ValueError, with those that exist, if there is none of this number."""
        depth = self.depth
        if not isinstance(layer, Integral) or isinstance(layer, bool) or not -depth - 1 <= layer <= depth:
            raise ValueError(
                f"there is no layer {layer}; the model has 0 to {depth}, or from the end −1 to −{depth + 1}"
            )
        return int(layer) % (depth + 1)

    def at_img_size(self, img_size, method="bicubic"):
        """A new model for images of another size, with these weights; ValueError where an architecture can't."""
        raise ValueError(f"{type(self).__name__} can't be made for images of another size than it was trained with")

    def reset_head(self, num_classes, seed=0):
        """Replace the head, in place, by a new linear one of this many classes, drawn by the seed; returns the model.

        The other weights stay, frozen ones stay frozen, and the classes get the names "0", "1", …. An optimizer made
        before goes on after its `rebind()`. Raises ValueError for an architecture without a head.
        """
        if type(self).why_no_classes:
            raise ValueError(f"there is no head to reset: {type(self).why_no_classes}")
        changes = {"num_classes": num_classes} | ({"head_hidden": None} if hasattr(self.config, "head_hidden") else {})
        config, state, (name, head) = replace(self.config, **changes), self.state_dict(), self.parts()[-1]
        for parameter in head.parameters():
            del state[parameter.name]
        dtype, device, precision = self.dtype, self.device, self.precision
        _, new = type(self)(config, device="meta").parts()[-1]
        setattr(self, name, new)
        self.config, self.why_no_classes = config, None
        self.materialize(seed, dtype, device, precision)
        self.load_state_dict(state, strict=False)
        if self.preprocessing is not None:
            self.preprocessing = replace(self.preprocessing, classes=tuple(map(str, range(num_classes))))
        return self

    def state_from(self, source, how=None):
        """The `state_dict` with which this model goes on from one of another architecture: of a ViT, say, for a model
        of videos. ValueError where there is none."""
        raise ValueError(f"the weights are those of a {type(source).__name__}, not of a {type(self).__name__}")

    @property
    def classes(self):
        """The names of the classes, in the order of the logits; () where nothing says them."""
        return () if self.preprocessing is None or self.why_no_classes else self.preprocessing.classes

    def predict(self, images, preprocess=None):
        """Class probabilities (B, K), in the parameters' dtype; no cache is kept.

        images       either what the model reads, normalised floating-point numbers (B, C, H, W); or images as Pillow
                     and NumPy have them, which `preprocessing` makes into that: see `Preprocessing.pixels`
        preprocess   which of the two: False or True. None goes by the type: arrays of floating-point numbers are
                     normalised already, all else is prepared

        Raises ValueError for a model without classes, and for images that don't fit.
        """
        require_classes(self)
        if self.why_no_classes:
            raise ValueError(f"{self.why_no_classes}; call the model for its output, or take model.features(images)")
        images = self.to_input(images, preprocess)
        with self.storage.compute_scope():
            logits, _ = self(images, Context(keep_caches=False))
            return self.probabilities(F.cast(logits, self.dtype) if self.storage.precision.is_low else logits)

    def probabilities(self, logits):
        """The class probabilities of logits (B, K)."""
        return F.softmax(logits)[0]

    def to_input(self, images, preprocess=None):
        """Images as the model reads them, (B, C, H, W); the arguments are those of `predict`."""
        kind = getattr(getattr(images, "dtype", None), "kind", "u")
        if kind in "uib" if preprocess is None else preprocess:
            return self.prepare(images)
        if not hasattr(images, "dtype"):
            raise ValueError(f"expected an array of images (B, C, H, W), got {type(images).__name__}")
        return images

    def prepare(self, images):
        """Images as Pillow and NumPy have them, as the model reads them, (B, C, H, W)."""
        if self.preprocessing is None:
            raise ValueError(
                "the model doesn't say how images are prepared: give normalised floating-point images (B, C, H, W), or "
                "set model.preprocessing"
            )
        pixels = self.preprocessing.pixels(images)
        return to_device(self.preprocessing(pixels, self.dtype.name), self.device)

    def __repr__(self):
        return f"{type(self).__name__}({self.num_parameters():,} parameters, {self.config})"


def split_context(ctx, count, number=0):
    """The context for samples that were split into `count` parts each, such as frames: part k of sample s draws the
    random numbers of sample s · count + k, on any number of threads.

    number   of several ways in which they are split, from 0: each draws numbers of its own
    """
    if ctx is None or ctx.key is None:
        return ctx
    return replace(ctx, key=replace(ctx.key, sample=(number << 32) + ctx.key.sample * count))


def size_read(config):
    """The size (H, W) that images are made into, or the function of an image's height and width that says it where a
    model of this configuration leaves images their own."""
    return config.nearest_size if getattr(config, "row_tokens", None) else as_pair(config.img_size)


def image_shape(config):
    """(C, H, W) of the images that a model of this configuration reads, (C, T, H, W) of the videos."""
    frames = getattr(config, "frames", None)
    return (config.in_chans, *(() if frames is None else (frames,)), *as_pair(config.img_size))


def as_input(images, image_shape, compute_dtype, any_size=False):
    """The images in the dtype that is computed in; ValueError if they are not what the model was built for.

    image_shape  (C, H, W), or (C, T, H, W) of videos
    any_size     whether only the channels must be those of `image_shape`
    """
    shape, dtype = getattr(images, "shape", None), getattr(images, "dtype", None)
    axes = 1 + len(image_shape)
    checked = 2 if any_size else axes
    if shape is None or len(shape) != axes or shape[1:checked] != image_shape[: checked - 1]:
        expected = ", ".join(str(side) for side in image_shape)
        got = type(images).__name__ if shape is None else shape
        raise ValueError(f"expected {'images' if axes == 4 else 'videos'} (B, {expected}), got {got}")
    if len(images) == 0:
        raise ValueError(f"expected at least one image, got {shape}")
    kind = getattr(dtype, "kind", "another library's")
    if kind not in "fc" and dtype != compute_dtype:  # bfloat16 is of no kind that NumPy knows
        got = f"{dtype} in {type(images).__name__}"
        raise ValueError(f"expected normalised images of floating-point numbers of NumPy or CuPy, got {got}")
    # Complex numbers stay: a complex step travels in their imaginary part.
    return images if kind == "c" else F.cast(images, compute_dtype)


def differences(theirs, own):
    """The fields, and their values, for which the weights of a model of one configuration don't fit another's."""
    found = []
    for field in fields(own):
        before, now = getattr(theirs, field.name), getattr(own, field.name)
        if is_dataclass(now) and type(before) is type(now):
            found += differences(before, now)
        elif field.name not in FREE and before != now:
            found.append(f"{field.name} {before!r}, and not {now!r}")
    return found


def require_classes(model):
    """Raise ValueError for a model without classes, which gives features where logits are needed."""
    if isinstance(model, Architecture) and not getattr(model.config, "num_classes", 0):
        raise ValueError(f"{HEADLESS}, and here logits are needed")
