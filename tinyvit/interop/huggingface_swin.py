"""Hugging Face's Swin."""

from tinyvit.interop.huggingface import ACTIVATIONS, LAYOUT, Layout, expect_only, register_layout
from tinyvit.interop.names import by_table
from tinyvit.models import SwinConfig

BLOCK = "encoder.layers.{}.blocks.{}"
OURS = "layers.{}.blocks.{}"
NAMES = {
    "patch_embed.proj": "embeddings.patch_embeddings.projection", "patch_embed.norm": "embeddings.norm",
    f"{OURS}.norm1": f"{BLOCK}.layernorm_before",
    f"{OURS}.attn.qkv": tuple(f"{BLOCK}.attention.self.{one}" for one in ("query", "key", "value")),
    f"{OURS}.attn.relative_position_bias_table": f"{BLOCK}.attention.self.relative_position_bias_table",
    f"{OURS}.attn.proj": f"{BLOCK}.attention.output.dense", f"{OURS}.norm2": f"{BLOCK}.layernorm_after",
    f"{OURS}.mlp.fc1": f"{BLOCK}.intermediate.dense", f"{OURS}.mlp.fc2": f"{BLOCK}.output.dense",
    "norm": "layernorm", "head.fc": "classifier",
}  # fmt: skip
OF_5 = {
    r"attention\.q_proj": "attention.self.query", r"attention\.k_proj": "attention.self.key",
    r"attention\.v_proj": "attention.self.value", r"attention\.o_proj": "attention.output.dense",
    r"attention\.relative_position_bias\.relative": "attention.self.relative",
    r"\.mlp\.fc1\.": ".intermediate.dense.", r"\.mlp\.fc2\.": ".output.dense.",
}  # fmt: skip
SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "num_channels", "embed_dim": "embed_dim",
    "depths": "depths", "num_heads": "num_heads", "window_size": "window_size", "mlp_ratio": "mlp_ratio",
    "qkv_bias": "qkv_bias", "drop_path_rate": "drop_path_rate", "norm_eps": "layer_norm_eps",
}  # fmt: skip
DEFAULTS = {  # of Transformers' SwinConfig
    "image_size": 224, "patch_size": 4, "num_channels": 3, "embed_dim": 96, "depths": (2, 2, 6, 2),
    "num_heads": (3, 6, 12, 24), "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True, "hidden_act": "gelu",
    "use_absolute_embeddings": False, "layer_norm_eps": 1e-5, "drop_path_rate": 0.1,
}  # fmt: skip


def names(name, config):
    """Their name of an array of ours, or their three for queries, keys and values."""
    stage, _, rest = name.removeprefix("layers.").partition(".")
    if rest.startswith("downsample."):
        return (f"encoder.layers.{int(stage) - 1}.{rest}",)  # theirs follows a stage, ours precedes one
    return by_table(NAMES, name)


def swin(fields, said, tensors):
    """The SwinConfig of a config.json; ValueError for what ours has no place for."""
    expect_only(said, hidden_act=tuple(name for name, ours in ACTIVATIONS.items() if ours == "gelu"),
                use_absolute_embeddings=(False,))  # fmt: skip
    return SwinConfig(**fields, num_classes=said["num_classes"])


def about(config):
    """The fields of config.json that have no name in common; ValueError for windows that are smaller in some stages,
    for which Hugging Face's Swin has no place."""
    for i in range(len(config.depths)):
        rows, columns = config.grid(i)
        if min(rows, columns) < config.window_size:
            raise ValueError(f"{LAYOUT} has no place for a grid of {rows}×{columns} tokens in stage {i}, which is "
                             f"smaller than a window of {config.window_size}×{config.window_size}")  # fmt: skip
    return {"hidden_size": config.out_chans, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "use_absolute_embeddings": False}  # fmt: skip


SWIN = Layout(("swin",), "swin", DEFAULTS, SAME, names, swin, about, "Swin", spellings=OF_5)
register_layout(SWIN)
