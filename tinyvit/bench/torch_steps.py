"""One step of a case in PyTorch: the same as `steps`, in PyTorch's fastest way, with timm's models."""

from contextlib import nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn import functional as T

from tinyvit.bench.steps import MATRIX_SIDES, arrays, batch, best_rate
from tinyvit.functional.patches import as_pair
from tinyvit.models import build
from tinyvit.models.registry import architecture_name
from tinyvit.models.resnet import STEMS


def load_libraries(threads):
    """Load what PyTorch loads in its first step; that should not count as memory of the work."""
    torch.set_num_threads(threads)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def prepare(case, precision, threads, name="torch"):
    """A function that computes the next step of a case and returns the same number as tinyvit's.

    name   "channels_last" keeps the channels of a pixel side by side in memory, as a ViT's images always are here
    """
    layout = torch.channels_last if name == "channels_last" or not case.has_convolutions else torch.contiguous_format
    make = {"train": training_step, "infer": inference_step}.get(case.kind, operation_step)
    return make(case, precision, layout)


def training_step(case, precision, layout=torch.channels_last, device="cpu", compiled=False):
    """A function that takes a training step and returns the loss, without waiting for a GPU.

    Loss and accuracy, gradients, their norm, fused AdamW. tf32 is PyTorch's switch of that name, bfloat16 and float16
    are its automatic mixed precision, with weights in float32 as ours.
    """
    ours = build(case.shape, seed=0, dtype="float64" if precision == "float64" else "float32")
    model = twin(ours).to(device, memory_format=layout).train()
    optimizer = torch.optim.AdamW(parameter_groups(ours, model), lr=1e-3, fused=True)
    images, targets = (torch.tensor(array).to(device) for array in batch(case, str(ours.dtype)))
    images = images.to(memory_format=layout)
    low = precision in ("bfloat16", "float16")

    def loss_and_accuracy(images, targets):
        with torch.autocast(device.partition(":")[0], getattr(torch, precision)) if low else nullcontext():
            logits = model(images)
            return T.cross_entropy(logits, targets), (logits.detach().argmax(1) == targets).float().mean()

    if compiled:
        loss_and_accuracy = torch.compile(loss_and_accuracy)

    def step():
        # The switch is the process's, and other steps may have turned it since.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        optimizer.zero_grad(set_to_none=True)
        loss, _ = loss_and_accuracy(images, targets)
        loss.backward()
        torch.nn.utils.get_total_norm([x.grad for group in optimizer.param_groups for x in group["params"]])
        optimizer.step()
        return loss.detach()

    return step


def inference_step(case, precision, layout):
    """The logits of a batch in inference mode. Returns the largest."""
    model = twin(build(case.shape, seed=0, dtype=precision)).to(memory_format=layout).eval()
    images = torch.tensor(batch(case, precision)[0]).to(memory_format=layout)

    def step():
        with torch.inference_mode():
            return model(images).max()

    return step


def operation_step(case, precision, layout):
    """Attention or a convolution and its backward. Returns the same gradient as tinyvit's step."""
    own, shared, dy = arrays(case, precision)
    tensors = [torch.from_numpy(array) for array in (*own, *shared, dy)]
    forward, s = T.scaled_dot_product_attention, case.shape
    if case.kind == "conv":
        tensors = [tensor.to(memory_format=layout) for tensor in tensors]
        forward = partial(T.conv2d, stride=s.stride, padding=s.kernel_size // 2, groups=s.groups)
    *inputs, dy = tensors
    inputs = [tensor.requires_grad_() for tensor in inputs]

    def step():
        gradients = torch.autograd.grad(forward(*inputs), inputs, dy)
        return (gradients[-1] if shared else gradients[0][0]).abs().max()

    return step


def product_rate(threads):
    """A function that returns the best rate of matrix products alone; PyTorch splits each over the threads."""

    def product(side):
        a, b = (torch.randn(shape) for shape in ((side * threads, side), (side, side)))
        out = torch.empty_like(a)
        return 2 * threads * side**3, lambda: torch.mm(a, b, out=out)

    return best_rate([product(side) for side in MATRIX_SIDES])


# -- timm's models ---------------------------------------------------------------------------------------------------


def twin(ours):
    """timm's model with the weights of a tinyvit model: a ViT with learned or sincos_2d positions, a linear head and
    exact GELU, or one of the other architectures."""
    config = ours.config
    theirs = {"vit": vit, "hybrid": hybrid, "resnet": resnet, "swin": swin, "coatnet": coatnet}
    model = theirs[architecture_name(config)](config).to(getattr(torch, str(ours.dtype)))
    own, weights = ours.state_dict(), model.state_dict().items()
    model.load_state_dict({name: torch.tensor(own[our_name(name)]).reshape(weight.shape)  # a linear layer may be 1×1
                           for name, weight in weights if our_name(name) in own})  # fmt: skip
    if getattr(config, "positions", "learned") != "learned":
        model.pos_embed.requires_grad_(False)
    return model


def our_name(name):
    """Our name of timm's parameter: they differ in CoAtNet's attention alone."""
    return name.replace("attn.rel_pos.", "attn.").replace("norm1.norm.", "norm1.")


def parameter_groups(ours, model):
    """PyTorch's parameter groups: weight decay for what our model marks `decay`, none for the rest."""
    decays = {name for name, parameter in ours.named_parameters() if parameter.decay}
    learned = [(our_name(name) in decays, parameter) for name, parameter in model.named_parameters()
               if parameter.requires_grad]  # fmt: skip
    return [{"params": [parameter for decay, parameter in learned if decay == marked], "weight_decay": share}
            for marked, share in ((True, 0.01), (False, 0.0))]  # fmt: skip


def timm_module(name):
    """A module of timm's models."""
    from importlib import import_module

    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # built for another PyTorch, such as the one with CUDA: it declares these, and timm needs none
        for operation in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operation}", "(Tensor dets, Tensor scores, float most) -> Tensor")
    return import_module(f"timm.models.{name}")


def vit(c, **more):
    options = {"img_size": c.img_size, "patch_size": c.patch_size} | more
    return timm_module("vision_transformer").VisionTransformer(
        **options, in_chans=c.in_chans, num_classes=c.num_classes, global_pool=c.global_pool, fc_norm=False,
        embed_dim=c.embed_dim, depth=c.depth, num_heads=c.num_heads, mlp_ratio=c.mlp_ratio, qkv_bias=c.qkv_bias,
        norm_layer=partial(nn.LayerNorm, eps=c.norm_eps), pos_drop_rate=c.drop_rate, proj_drop_rate=c.drop_rate,
        attn_drop_rate=c.attn_drop_rate, drop_path_rate=c.drop_path_rate,
    )  # fmt: skip


def hybrid(c):
    trunk = resnet(c.stem)
    trunk.fc, trunk.forward = nn.Identity(), trunk.forward_features
    side = [patch // c.stem.stride for patch in as_pair(c.patch_size)]
    embed = timm_module("vision_transformer_hybrid").HybridEmbed
    return vit(c, patch_size=side, embed_layer=partial(embed, trunk))


def resnet(c):
    module, (kernel, stride, _) = timm_module("resnet"), STEMS[c.stem]
    block = {"basic": module.BasicBlock, "bottleneck": module.Bottleneck}[c.block]
    widths = [c.width << i for i in range(len(c.depths))]
    model = module.ResNet(block, c.depths, getattr(c, "num_classes", 0), c.in_chans, channels=widths)
    for i in range(len(c.depths), 4):
        setattr(model, f"layer{i + 1}", nn.Identity())
    if c.stem != "conv7":
        model.conv1 = nn.Conv2d(c.in_chans, c.width, kernel, stride, 1, bias=False)
        model.bn1, model.maxpool = nn.BatchNorm2d(c.width), nn.Identity()
    return model


def swin(c):
    return timm_module("swin_transformer").SwinTransformer(
        c.img_size, c.patch_size, c.in_chans, c.num_classes, embed_dim=c.embed_dim, depths=c.depths,
        num_heads=c.num_heads, window_size=c.window_size, mlp_ratio=c.mlp_ratio, qkv_bias=c.qkv_bias,
        drop_path_rate=c.drop_path_rate, norm_layer=partial(nn.LayerNorm, eps=c.norm_eps),
    )  # fmt: skip


def coatnet(c):
    module = timm_module("maxxvit")
    conv = module.MaxxVitConvCfg(expand_ratio=c.expansion, attn_ratio=c.squeeze)
    attend = module.MaxxVitTransformerCfg(dim_head=c.head_dim, expand_ratio=c.expansion, norm_eps=c.norm_eps)
    cfg = module.MaxxVitCfg(c.widths, c.depths, tuple(c.stages), c.stem_width, True, conv, attend)
    model = module.MaxxVit(cfg, c.img_size, c.in_chans, c.num_classes)
    model.stem.conv1.stride = as_pair(c.stem_stride)
    # timm halves the sides in each stage.
    size, width, stages = [-(-side // c.stem_stride) for side in as_pair(c.img_size)], c.stem_width, []
    for kind, depth, out, stride in zip(c.stages, c.depths, c.widths, c.strides):
        size = [-(-side // stride) for side in size]
        stages.append(module.MaxxVitStage(width, out, stride, depth, size, kind, attend, conv, [0.0] * depth))
        width = out
    model.stages = nn.Sequential(*stages)
    for layer in model.modules():
        if isinstance(layer, module.Attention2d):
            layer.head_first = False  # ours are all queries, all keys, all values
    return model
