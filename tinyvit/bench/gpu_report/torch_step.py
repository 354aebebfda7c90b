"""A training step of PyTorch on the GPU, to compare with."""

import torch
from torch.nn import functional as T

from tinyvit.bench import steps
from tinyvit.bench.torch_steps import decaying_as, twin
from tinyvit.models import ViT


def torch_step(case, device, precision, compiled=False):
    """A function that queues the next step, the way that is fastest there, and returns the loss.

    tf32 is PyTorch's switch of that name, bfloat16 its automatic mixed precision: weights in float32, as ours.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    low = getattr(torch, precision) if precision in ("bfloat16", "float16") else None
    ours = ViT(case.config, seed=0)
    model = twin(ours, torch.channels_last).to(device).train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(decaying_as(ours, model), lr=1e-3, weight_decay=0.01, fused=True)
    images, targets = (torch.tensor(array).to(device) for array in steps.batch(case, "float32"))
    images = images.to(memory_format=torch.channels_last)

    def loss_and_accuracy(images, targets):
        with torch.autocast(images.device.type, low, enabled=low is not None):
            logits = model(images)
            return T.cross_entropy(logits, targets), (logits.detach().argmax(1) == targets).float().mean()

    if compiled:
        loss_and_accuracy = torch.compile(loss_and_accuracy)

    def step():
        # PyTorch's switch is the process's, and other steps may have turned it since.
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        optimizer.zero_grad(set_to_none=True)
        loss, _ = loss_and_accuracy(images, targets)
        loss.backward()
        torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        optimizer.step()
        return loss.detach()

    return step
