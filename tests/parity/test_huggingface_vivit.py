"""ViViT against Transformers' VivitForVideoClassification (model 1) and an independent PyTorch model (model 2)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_transformers import assert_same_outputs_and_gradients
from small_weights import model_of, redrawn_weights
from strategies import redrawn
from torch import nn
from torch_autograd import assert_all_close, assert_same_as_torch, normal
from transformers import VivitConfig, VivitForVideoClassification, VivitImageProcessor, VivitModel

from tinyvit import cli, interop
from tinyvit import functional as F
from tinyvit.interop.huggingface_config import preprocessing_of, read_processor
from tinyvit.interop.huggingface_vits import VIVIT
from tinyvit.models import FactorisedViViTConfig, ViViTConfig, build, create_model

pytestmark = pytest.mark.parity

SHAPE = ViViTConfig(img_size=12, patch_size=4, in_chans=3, num_classes=5, embed_dim=24, depth=2, num_heads=3, frames=6,
                    tubelet_frames=2, activation="gelu_tanh")  # fmt: skip
CONFIGS = {
    "plain": SHAPE,
    "exact GELU, one channel, no bias": replace(SHAPE, activation="gelu", in_chans=1, qkv_bias=False),
    "tubelets of three frames": replace(SHAPE, tubelet_frames=3, patch_size=6),
    "fixed positions": replace(SHAPE, positions="sincos_3d"),
}


def in_their_order(videos):
    """Videos (B, T, C, H, W), as Transformers wants them."""
    return videos.transpose(1, 2)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_every_gradient_are_those_of_transformers(name, tmp_path):
    weights = redrawn_weights(CONFIGS[name])
    kind = VivitForVideoClassification
    assert_same_outputs_and_gradients(weights, VIVIT, kind, tmp_path / "folder", order=in_their_order)


@pytest.mark.parametrize("classes", [5, 0])
def test_the_command_says_how_to_load_what_it_exported(tmp_path, capsys, classes):
    weights = redrawn_weights(replace(SHAPE, num_classes=classes), "float32")
    interop.save(weights, tmp_path / "theirs", "huggingface")
    importing = ["import", tmp_path / "theirs", "--out", tmp_path / "run"]
    exporting = ["export", tmp_path / "run", "--format", "huggingface", "--out", tmp_path / "again"]
    for arguments in (importing, exporting):
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        assert not end.value.code
    said = capsys.readouterr().out
    assert "videos of 6 frames of 12×12" in said
    call = "VivitForVideoClassification" if classes else "VivitModel"
    more = "" if classes else ", add_pooling_layer=False"
    assert f"transformers.{call}.from_pretrained({str(tmp_path / 'again')!r}{more})" in said
    for name in ("model.safetensors", "config.json", "preprocessor_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


@pytest.mark.parametrize("kind", [VivitForVideoClassification, VivitModel])
def test_what_transformers_writes_is_read(kind, tmp_path):
    torch.manual_seed(0)
    theirs = kind(VivitConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
                              image_size=12, num_frames=4, tubelet_size=[2, 6, 4], num_labels=7))  # fmt: skip
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    theirs.eval().save_pretrained(tmp_path / "theirs")
    VivitImageProcessor(crop_size=12, size={"shortest_edge": 16}).save_pretrained(tmp_path / "theirs")
    weights = interop.load(tmp_path / "theirs")
    config, ours = weights.config, model_of(weights, "float64")
    assert (config.frames, config.tubelet, config.activation) == (4, (2, 6, 4), "gelu_tanh")
    videos = normal(0, (2, 3, 4, 12, 12))
    theirs.set_attn_implementation("sdpa")
    with torch.no_grad():
        found = theirs.double()(in_their_order(torch.tensor(videos)))
    expected = found.logits if config.num_classes else found.last_hidden_state[:, 0]
    np.testing.assert_allclose(ours(videos)[0], expected.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"offset": False, "rescale_factor": 1 / 255}, {"do_normalize": False}])
def test_pixels_are_prepared_as_their_processor_does(options):
    processor = VivitImageProcessor(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12}, **options)
    frames = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), dtype="uint8")
    expected = np.array(processor([*frames], return_tensors="np")["pixel_values"])      # (1, T, C, H, W)
    fields, _ = read_processor(VIVIT, processor.to_dict())
    prepared, _ = preprocessing_of((), fields, SHAPE)
    got = prepared(frames.transpose(3, 0, 1, 2)[None])
    np.testing.assert_allclose(got.transpose(0, 2, 1, 3, 4), expected, rtol=1e-5, atol=1e-6)


def test_vivit_b_has_as_many_parameters_as_transformers():
    with torch.device("meta"):
        theirs = VivitForVideoClassification(VivitConfig(num_labels=400))
    count = sum(parameter.numel() for parameter in theirs.parameters())
    assert create_model("vivit_base_patch16x2_224", device="meta").num_parameters() == count == 88_954_000


def test_their_gelu_fast_is_gelu_tanh_with_a_rounded_constant():
    from transformers.activations import ACT2FN

    assert_same_as_torch(F.gelu_tanh, ACT2FN["gelu_fast"], 3 * normal(0, (4, 50)))


def test_tubelets_and_their_projection_are_a_convolution_in_three_dimensions():
    videos, weight, bias = normal(0, (2, 3, 4, 6, 8), (5, 3, 2, 3, 4), (5,))

    def ours(x, weight, bias):
        cut, c_cut = F.tubelets(x, (2, 3, 4))
        y, c_linear = F.linear(cut, weight.reshape(5, -1), bias)
        return y, (c_cut, c_linear)

    def backward(dy, caches):
        dcut, dweight, dbias = F.linear_backward(dy, caches[1])
        return F.tubelets_backward(dcut, caches[0]), dweight.reshape(weight.shape), dbias

    def theirs(x, weight, bias):
        return nn.functional.conv3d(x, weight, bias, stride=(2, 3, 4)).flatten(2).transpose(1, 2)

    assert_same_as_torch(ours, theirs, videos, weight, bias, backward=backward)


# -- model 2, an independent version ----------------------------------------------------------------------------------


class Factorised(nn.Module):
    """The factorised encoder in PyTorch's own layers, written from section 3.3 of the paper."""

    def __init__(self, config):
        super().__init__()
        self.config, D = config, config.embed_dim
        t, rows, columns = config.video_grid
        token = config.global_pool == "token"
        self.conv = nn.Conv3d(config.in_chans, D, config.tubelet, config.tubelet)
        self.cls, self.time_cls = (nn.Parameter(torch.zeros(1, 1, D)) if token else None for _ in range(2))
        self.space = nn.Parameter(torch.zeros(1, rows * columns + token, D))
        self.time = nn.Parameter(torch.zeros(1, t + token, D))
        self.spatial, self.temporal = (
            nn.ModuleList(nn.TransformerEncoderLayer(D, config.num_heads, config.mlp_hidden, dropout=0.0,
                                                     activation="gelu", norm_first=True, batch_first=True,
                                                     layer_norm_eps=config.norm_eps) for _ in range(depth))
            for depth in (config.depth, config.temporal_depth)
        )  # fmt: skip
        self.norm, self.time_norm = (nn.LayerNorm(D, eps=config.norm_eps) for _ in range(2))
        self.head = nn.Linear(D, config.num_classes)

    def read(self, x, token, positions, layers, norm):
        x = x if token is None else torch.cat([token.expand(len(x), -1, -1), x], dim=1)
        x = x + positions
        for layer in layers:
            x = layer(x)
        x = norm(x)
        return x.mean(1) if token is None else x[:, 0]

    def forward(self, videos):
        maps = self.conv(videos)                                                # (B, D, t, h, w)
        frames = []
        for t in range(maps.shape[2]):
            tokens = maps[:, :, t].flatten(2).transpose(1, 2)
            frames.append(self.read(tokens, self.cls, self.space, self.spatial, self.norm))
        x = torch.stack(frames, dim=1)                                          # (B, t, D)
        return self.head(self.read(x, self.time_cls, self.time, self.temporal, self.time_norm))


TOP = {"patch_embed.proj": "conv", "cls_token": "cls", "time_token": "time_cls", "pos_embed": "space",
       "time.pos_embed": "time", "norm": "norm", "temporal_norm": "time_norm", "head": "head"}  # fmt: skip
IN_LAYER = {"norm1.weight": "norm1.weight", "norm1.bias": "norm1.bias", "norm2.weight": "norm2.weight",
            "norm2.bias": "norm2.bias", "attn.qkv.weight": "self_attn.in_proj_weight",
            "attn.qkv.bias": "self_attn.in_proj_bias", "attn.proj.weight": "self_attn.out_proj.weight",
            "attn.proj.bias": "self_attn.out_proj.bias", "mlp.fc1.weight": "linear1.weight",
            "mlp.fc1.bias": "linear1.bias", "mlp.fc2.weight": "linear2.weight",
            "mlp.fc2.bias": "linear2.bias"}  # fmt: skip


def name_in_torch(name):
    if "blocks." in name:
        stage = "temporal" if name.startswith("temporal_") else "spatial"
        number, _, rest = name.partition("blocks.")[2].partition(".")
        return f"{stage}.{number}.{IN_LAYER[rest]}"
    if name in TOP:
        return TOP[name]
    part, _, ending = name.rpartition(".")
    return f"{TOP[part]}.{ending}"


@pytest.mark.parametrize("pool", ["token", "avg"])
@pytest.mark.parametrize("tubelet", [1, 2])
def test_the_factorised_encoder_is_the_one_of_the_paper(pool, tubelet):
    config = FactorisedViViTConfig(img_size=(8, 12), patch_size=4, in_chans=2, num_classes=5, embed_dim=24, depth=2,
                                   num_heads=3, frames=4, tubelet_frames=tubelet, temporal_depth=2,
                                   global_pool=pool)  # fmt: skip
    ours, theirs = redrawn(build(config, dtype="float64")), Factorised(config).double()
    state = {name_in_torch(name): torch.tensor(array) for name, array in ours.state_dict().items()}
    theirs.load_state_dict(state)
    videos, dy = normal(1, (2, 2, 4, 8, 12)), normal(2, (2, 5))
    leaf = torch.tensor(videos, requires_grad=True)
    expected = theirs(leaf)
    expected.backward(torch.tensor(dy))
    logits, cache = ours(videos)
    got = {"logits": logits, "dvideos": ours.backward(dy, cache)}
    got |= {name_in_torch(name): parameter.grad for name, parameter in ours.named_parameters()}
    reference = {"logits": expected.detach().numpy(), "dvideos": leaf.grad.numpy()}
    assert_all_close(got, reference | {n: p.grad.numpy() for n, p in theirs.named_parameters()})
