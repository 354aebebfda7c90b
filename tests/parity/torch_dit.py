"""A DiT and its diffusion in PyTorch, written from the papers, with the names of the paper's code."""

from math import log

import torch
from torch import nn
from torch.nn import functional as T


class TorchAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.proj(T.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TorchMlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(T.gelu(self.fc1(x), approximate="tanh"))


def modulated(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TorchDiTBlock(nn.Module):
    def __init__(self, dim, heads, hidden, eps):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=False)
        self.attn, self.mlp = TorchAttention(dim, heads), TorchMlp(dim, hidden)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, c):
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + gate_msa.unsqueeze(1) * self.attn(modulated(self.norm(x), shift_msa, scale_msa))
        return x + gate_mlp.unsqueeze(1) * self.mlp(modulated(self.norm(x), shift_mlp, scale_mlp))


class TorchFinalLayer(nn.Module):
    def __init__(self, dim, out, eps):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=False)
        self.linear = nn.Linear(dim, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))

    def forward(self, x, c):
        return self.linear(modulated(self.norm(x), *self.adaLN_modulation(c).chunk(2, dim=1)))


class TorchTimestep(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        frequencies = torch.exp(-log(10_000) * torch.arange(128, dtype=torch.float64) / 128)
        angles = t[:, None].double() * frequencies
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.mlp[0].weight.dtype))


class TorchLabel(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.embedding_table = nn.Embedding(rows, dim)

    def forward(self, labels):
        return self.embedding_table(labels)


class TorchPatch(nn.Module):
    def __init__(self, channels, dim, patch):
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, patch, patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class TorchDiT(nn.Module):
    """Images (B, C, H, W), times and labels (B,) to (B, C′, H, W); patches come out as (P, Q, C′), as in the paper's
    code."""

    def __init__(self, config):
        super().__init__()
        dim, hidden = config.embed_dim, int(config.embed_dim * config.mlp_ratio)
        self.patch, self.grid, self.channels = config.patch_size, config.grid, config.out_chans
        self.x_embedder = TorchPatch(config.in_chans, dim, config.patch_size)
        self.t_embedder = TorchTimestep(dim)
        self.y_embedder = TorchLabel(config.num_classes + (config.label_dropout > 0), dim)
        self.register_buffer("pos_embed", torch.zeros(1, self.grid[0] * self.grid[1], dim))
        self.blocks = nn.ModuleList(
            TorchDiTBlock(dim, config.num_heads, hidden, config.norm_eps) for _ in range(config.depth)
        )
        self.final_layer = TorchFinalLayer(dim, config.patch_size**2 * self.channels, config.norm_eps)

    def positions(self):
        """Sines and cosines of the column in the first half, of the row in the second."""
        rows, columns = self.grid
        quarter = self.pos_embed.shape[-1] // 4
        frequencies = 10_000 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        halves = [place.flatten()[:, None].double() * frequencies for place in (x, y)]
        return torch.cat([part for half in halves for part in (half.sin(), half.cos())], dim=-1)[None]

    def forward(self, x, t, labels):
        x = self.x_embedder(x) + self.pos_embed
        c = self.t_embedder(t) + self.y_embedder(labels)
        for block in self.blocks:
            x = block(x, c)
        x = self.final_layer(x, c).unflatten(1, self.grid).unflatten(-1, (self.patch, self.patch, self.channels))
        return torch.einsum("bijpqc->bcipjq", x).flatten(4, 5).flatten(2, 3)


def load(torch_model, state):
    """Give a TorchDiT the weights of our model: only the rows of the last layer come in another order."""
    P, C = torch_model.patch, torch_model.channels
    state = {name: torch.tensor(array) for name, array in state.items()}
    for name in ("final_layer.linear.weight", "final_layer.linear.bias"):
        array = state[name].unflatten(0, (C, P, P)).permute(1, 2, 0, *range(3, state[name].ndim + 2))
        state[name] = array.flatten(0, 2)
    torch_model.load_state_dict(state)
    torch.testing.assert_close(torch_model.pos_embed, torch_model.positions().to(torch_model.pos_embed.dtype))


def linear_levels(steps):
    return torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps, dtype=torch.float64), 0)


def normal_cdf(x):
    return torch.special.ndtr(x)


def training_loss(model, images, labels, t, noise, levels, darkest, half):
    """Mean squared error of the noise, and for a learned variance the bits per number of the step back, whose mean is
    taken as a constant."""
    level = levels[t][:, None, None, None]
    noisy = level.sqrt() * images + (1 - level).sqrt() * noise
    output = model(noisy, t, labels)
    C = images.shape[1]
    loss = ((output[:, :C] - noise) ** 2).mean()
    if output.shape[1] == C:
        return loss
    before = torch.cat([torch.ones(1, dtype=torch.float64), levels[:-1]])
    betas = 1 - levels / before
    variance = betas * (1 - before) / (1 - levels)
    log_variance = torch.log(torch.cat([variance[1:2], variance[1:]]))
    first = betas * before.sqrt() / (1 - levels)
    second = (1 - before) * (1 - betas).sqrt() / (1 - levels)
    at = [values[t][:, None, None, None] for values in (first, second, log_variance, betas.log())]
    found, v = output[:, :C].detach(), output[:, C:]
    image = (noisy - (1 - level).sqrt() * found) / level.sqrt()
    true_mean, mean = at[0] * images + at[1] * noisy, at[0] * image + at[1] * noisy
    share = (v + 1) / 2
    log_v = share * at[3] + (1 - share) * at[2]
    kl = 0.5 * (log_v - at[2] + torch.exp(at[2] - log_v) + (true_mean - mean) ** 2 * torch.exp(-log_v) - 1)
    spread, off = torch.exp(-0.5 * log_v), images - mean
    upper, lower = normal_cdf(spread * (off + half)), normal_cdf(spread * (off - half))
    brightest = -darkest
    likelihood = torch.where(images < darkest + half, upper,
                             torch.where(images > brightest - half, 1 - lower, upper - lower))  # fmt: skip
    nll = -torch.log(likelihood.clamp(min=1e-12))
    return loss + torch.where((t == 0)[:, None, None, None], nll, kl).mean() / log(2)


def ddim(model, x, labels, none, levels, steps, guidance):
    """The whole trajectory [x_T, …, x_0] of DDIM without noise."""
    times = torch.linspace(len(levels) - 1, 0, steps, dtype=torch.float64).round().long()
    states = [x]
    for i, t in enumerate(times):
        now = levels[t]
        later = levels[times[i + 1]] if i + 1 < steps else torch.ones((), dtype=torch.float64)
        moment = torch.full((len(x),), int(t))
        with torch.no_grad():
            with_class, without = model(x, moment, labels), model(x, moment, torch.full_like(labels, none))
        C = x.shape[1]
        noise = without[:, :C] + guidance * (with_class[:, :C] - without[:, :C])
        image = (x - (1 - now).sqrt() * noise) / now.sqrt()
        x = later.sqrt() * image + (1 - later).sqrt() * noise
        states.append(x)
    return states
