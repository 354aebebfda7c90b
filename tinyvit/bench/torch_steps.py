"""One step of a case in PyTorch: the same as `steps`, in PyTorch's fastest way."""

import torch
from torch.nn import functional as T

from tinyvit.bench.products import best_of, shapes_for
from tinyvit.bench.steps import batch, images_and_filters, projections
from tinyvit.bench.torch_coatnet import TorchCoAtNet
from tinyvit.bench.torch_resnet import TorchResNet, with_stem
from tinyvit.bench.torch_swin import TorchSwin
from tinyvit.bench.torch_vit import TorchViT
from tinyvit.models import build
from tinyvit.models.registry import architecture_name


def load():
    """Load what PyTorch loads in its first step; that should not count as memory of the work."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def prepare(case, precision, threads, compiled=False, memory_format="contiguous_format"):
    """A function that computes the next step of a case and returns the same number as tinyvit's.

    memory_format   PyTorch's name of that of what convolutions read; a ViT's images are in channels_last
    """
    torch.set_num_threads(threads)
    compiler = torch.compile if compiled else lambda function: function
    memory_format = getattr(torch, memory_format if case.convolves else "channels_last")
    if case.kind == "attention":
        return attention(case, precision, compiler)
    return {"train": train, "infer": infer, "conv": convolution}[case.kind](case, precision, compiler, memory_format)


def train(case, precision, compiler, memory_format):
    """A training step: loss and accuracy, gradients, their norm, fused AdamW. Returns the loss."""
    ours = build(case.config, seed=0, dtype=precision)
    model = twin(ours, memory_format).train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(decaying_as(ours, model), lr=1e-3, weight_decay=0.01, fused=True)
    images, targets = torch_batch(case, precision, memory_format)

    @compiler
    def loss_and_accuracy(images, targets):
        logits = model(images)
        return T.cross_entropy(logits, targets), (logits.detach().argmax(1) == targets).float().mean()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss, _ = loss_and_accuracy(images, targets)
        loss.backward()
        torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        optimizer.step()
        return float(loss.detach())

    return step


def infer(case, precision, compiler, memory_format):
    """The logits of a batch in inference mode. Returns the largest."""
    model = twin(build(case.config, seed=0, dtype=precision), memory_format).eval()
    images, _ = torch_batch(case, precision, memory_format)
    logits = compiler(model)

    def step():
        with torch.inference_mode():
            return float(logits(images).max())

    return step


def attention(case, precision, compiler):
    """Attention and its backward. Returns the largest gradient of the bias or of the first sample's queries."""
    *arrays, bias = (None if array is None else torch.tensor(array) for array in projections(case, precision))
    qkv, dheads = arrays[0].permute(2, 0, 3, 1, 4), arrays[1].transpose(1, 2)         # each (B, H, N, d)
    inputs = [array.requires_grad_() for array in (*qkv, bias) if array is not None]
    heads = compiler(lambda q, k, v, bias=None: T.scaled_dot_product_attention(q, k, v, attn_mask=bias))

    def step():
        gradients = torch.autograd.grad(heads(*inputs), inputs, dheads)
        return float((gradients[0][0] if bias is None else gradients[-1]).abs().max())

    return step


def convolution(case, precision, compiler, memory_format):
    """A convolution and its backward. Returns the largest gradient of the filters."""
    arrays = images_and_filters(case, precision)
    x, weight, dy = (torch.tensor(array).contiguous(memory_format=memory_format) for array in arrays)
    inputs = x.requires_grad_(), weight.requires_grad_()
    conv = compiler(lambda x, weight: T.conv2d(x, weight, None, case.stride, case.padding, 1, case.groups))
    return lambda: float(torch.autograd.grad(conv(*inputs), inputs, dy)[1].abs().max())


THEIRS = {
    "vit": TorchViT, "resnet": TorchResNet, "hybrid": lambda config: with_stem(TorchViT(config), config),
    "swin": TorchSwin, "coatnet": TorchCoAtNet,
}  # fmt: skip


def twin(ours, memory_format):
    """The PyTorch model with the weights of a tinyvit model."""
    config = ours.config
    model = THEIRS[architecture_name(config)](config)
    model = model.to(getattr(torch, str(ours.dtype)))
    weights = {name: torch.tensor(array) for name, array in ours.state_dict().items()}
    model.load_state_dict(model.state_dict() | weights)  # that of PyTorch counts batches as well
    return model.to(memory_format=memory_format)


def torch_batch(case, precision, memory_format):
    images, targets = batch(case, precision)
    return torch.tensor(images).to(memory_format=memory_format), torch.tensor(targets)


def decaying_as(ours, twin):
    """PyTorch's parameter groups: weight decay for what our model marks `decay`, none for the rest."""
    decay = {name: parameter.decay for name, parameter in ours.named_parameters()}
    groups = {True: [], False: []}
    for name, parameter in twin.named_parameters():
        if parameter.requires_grad:
            groups[decay[name]].append(parameter)
    return [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}]


def products(case, precision, threads):
    """A function that runs matrix products for a moment, and returns the highest rate; see `bench.products`."""
    torch.set_num_threads(threads)
    dtype, generator = getattr(torch, precision), torch.Generator().manual_seed(0)

    def product(m, k, n):
        m = m * threads                                    # PyTorch splits one product over the threads
        a, b = (torch.randn(shape, dtype=dtype, generator=generator) for shape in ((m, k), (k, n)))
        out = torch.empty(m, n, dtype=dtype)

        def run(repeats):
            for _ in range(repeats):
                torch.mm(a, b, out=out)

        return 2 * m * k * n, run

    return best_of([product(*shape) for shape in shapes_for(case, threads)])
