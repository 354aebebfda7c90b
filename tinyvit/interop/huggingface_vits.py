"""Hugging Face's ViT, DeiT, DINOv2 and ViViT, which have most of their layout in common, Swin, and Qwen2.5-VL's
vision encoder."""

from tinyvit.interop.huggingface import (
    Layout,
    expect_only,
    expect_place,
    read_activation,
    register_layout,
    write_activation,
)
from tinyvit.interop.huggingface_clip import CLIP
from tinyvit.interop.names import as_side, mlp_ratio, names_in_table
from tinyvit.models import DeiTConfig, Dinov2Config, QwenVisionConfig, SwinConfig, ViTConfig, ViViTConfig

LAYER = "encoder.layer.{}"
NAMES = {
    "cls_token": "embeddings.cls_token", "dist_token": "embeddings.distillation_token",
    "reg_token": "embeddings.register_tokens", "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection", "blocks.{}.norm1": f"{LAYER}.layernorm_before",
    "blocks.{}.attn.qkv": tuple(f"{LAYER}.attention.attention.{one}" for one in ("query", "key", "value")),
    "blocks.{}.attn.proj": f"{LAYER}.attention.output.dense", "blocks.{}.norm2": f"{LAYER}.layernorm_after",
    "blocks.{}.mlp.fc1": f"{LAYER}.intermediate.dense", "blocks.{}.mlp.fc2": f"{LAYER}.output.dense",
    "norm": "layernorm", "pre_logits.fc": "pooler.dense", "head": "classifier",
}  # fmt: skip
DEIT_NAMES = NAMES | {"head": "cls_classifier", "head_dist": "distillation_classifier"}
DINO_NAMES = NAMES | {
    "blocks.{}.norm1": f"{LAYER}.norm1", "blocks.{}.ls1.gamma": f"{LAYER}.layer_scale1.lambda1",
    "blocks.{}.norm2": f"{LAYER}.norm2", "blocks.{}.ls2.gamma": f"{LAYER}.layer_scale2.lambda1",
    "blocks.{}.mlp.fc1": f"{LAYER}.mlp.fc1", "blocks.{}.mlp.fc2": f"{LAYER}.mlp.fc2",
}  # fmt: skip
GATED_DINO_NAMES = DINO_NAMES | {
    "blocks.{}.mlp.fc1": f"{LAYER}.mlp.weights_in", "blocks.{}.mlp.fc2": f"{LAYER}.mlp.weights_out",
}  # fmt: skip
ATTENTION_SPELLINGS = {
    r"^layers\.": "encoder.layer.", r"attention\.q_proj": "attention.attention.query",
    r"attention\.k_proj": "attention.attention.key", r"attention\.v_proj": "attention.attention.value",
    r"attention\.o_proj": "attention.output.dense",
}  # fmt: skip
SPELLINGS = ATTENTION_SPELLINGS | {r"\.mlp\.fc1\.": ".intermediate.dense.", r"\.mlp\.fc2\.": ".output.dense."}
SAME = {
    "embed_dim": "hidden_size", "depth": "num_hidden_layers", "num_heads": "num_attention_heads",
    "drop_rate": "hidden_dropout_prob", "attn_drop_rate": "attention_probs_dropout_prob", "norm_eps": "layer_norm_eps",
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "num_channels", "qkv_bias": "qkv_bias",
}  # fmt: skip
DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True, "pooler_act": "tanh",
}  # fmt: skip
THEIR_BLOCK = "encoder.layers.{}.blocks.{}"
OUR_BLOCK = "layers.{}.blocks.{}"
SWIN_NAMES = {
    "patch_embed.proj": "embeddings.patch_embeddings.projection", "patch_embed.norm": "embeddings.norm",
    f"{OUR_BLOCK}.norm1": f"{THEIR_BLOCK}.layernorm_before",
    f"{OUR_BLOCK}.attn.qkv": tuple(f"{THEIR_BLOCK}.attention.self.{one}" for one in ("query", "key", "value")),
    f"{OUR_BLOCK}.attn.relative_position_bias_table": f"{THEIR_BLOCK}.attention.self.relative_position_bias_table",
    f"{OUR_BLOCK}.attn.proj": f"{THEIR_BLOCK}.attention.output.dense",
    f"{OUR_BLOCK}.norm2": f"{THEIR_BLOCK}.layernorm_after",
    f"{OUR_BLOCK}.mlp.fc1": f"{THEIR_BLOCK}.intermediate.dense", f"{OUR_BLOCK}.mlp.fc2": f"{THEIR_BLOCK}.output.dense",
    "norm": "layernorm", "head.fc": "classifier",
}  # fmt: skip
SWIN_SPELLINGS = {
    r"attention\.q_proj": "attention.self.query", r"attention\.k_proj": "attention.self.key",
    r"attention\.v_proj": "attention.self.value", r"attention\.o_proj": "attention.output.dense",
    r"attention\.relative_position_bias\.relative": "attention.self.relative",
    r"\.mlp\.fc1\.": ".intermediate.dense.", r"\.mlp\.fc2\.": ".output.dense.",
}  # fmt: skip
SWIN_SAME = {
    "img_size": "image_size", "patch_size": "patch_size", "in_chans": "num_channels", "embed_dim": "embed_dim",
    "depths": "depths", "num_heads": "num_heads", "window_size": "window_size", "mlp_ratio": "mlp_ratio",
    "qkv_bias": "qkv_bias", "drop_path_rate": "drop_path_rate", "norm_eps": "layer_norm_eps",
}  # fmt: skip
SWIN_DEFAULTS = {  # of Transformers' SwinConfig
    "image_size": 224, "patch_size": 4, "num_channels": 3, "embed_dim": 96, "depths": (2, 2, 6, 2),
    "num_heads": (3, 6, 12, 24), "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True, "hidden_act": "gelu",
    "use_absolute_embeddings": False, "layer_norm_eps": 1e-5, "drop_path_rate": 0.1,
}  # fmt: skip
QWEN_NAMES = {
    "blocks.{}.mlp.fc1": ("blocks.{}.mlp.gate_proj", "blocks.{}.mlp.up_proj"),
    "blocks.{}.mlp.fc2": "blocks.{}.mlp.down_proj",
}  # fmt: skip
QWEN_SAME = {
    "embed_dim": "hidden_size", "depth": "depth", "num_heads": "num_heads", "mlp_hidden": "intermediate_size",
    "in_chans": "in_channels", "patch_size": "patch_size", "tubelet_frames": "temporal_patch_size",
    "merge_size": "spatial_merge_size", "window_size": "window_size", "out_dim": "out_hidden_size",
    "full_attention": "fullatt_block_indexes",
}  # fmt: skip
QWEN_DEFAULTS = {  # of Transformers' Qwen2_5_VLVisionConfig, which are those of no released model
    "hidden_size": 3584, "depth": 32, "num_heads": 16, "intermediate_size": 3420, "in_channels": 3, "patch_size": 14,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "window_size": 112, "out_hidden_size": 3584,
    "fullatt_block_indexes": (7, 15, 23, 31), "hidden_act": "silu",
}  # fmt: skip


def vit_fields(fields, said):
    """The fields of a ViTConfig."""
    ratio = mlp_ratio(said["intermediate_size"], said["hidden_size"])
    return fields | {"num_classes": said["num_classes"], "activation": read_activation(said), "mlp_ratio": ratio}


def vit_config(fields, said, tensors):
    """The ViTConfig of a config.json. Without a classifier a pooler is the hidden layer with tanh, and the output is
    their pooler_output."""
    pooler, hidden = tensors.get("pooler.dense.weight"), None
    if pooler is not None and not said["num_classes"] and said["pooler_act"] == "tanh":
        hidden = said.get("pooler_output_size", len(pooler))
    return ViTConfig(**vit_fields(fields, said), head_hidden=hidden)


def deit_config(fields, said, tensors):
    """The DeiTConfig of a config.json; ValueError for a DeiT with one classifier, which ours has no place for."""
    if "classifier.weight" in tensors:
        raise ValueError(
            "the weights are those of DeiTForImageClassification, whose only head reads the class token; expected "
            "DeiTForImageClassificationWithTeacher, with cls_classifier and distillation_classifier, or DeiTModel"
        )
    return DeiTConfig(**vit_fields(fields, said))


def dinov2_config(fields, said, tensors):
    """The Dinov2Config of a config.json, whose output is their pooler_output, the class token. ValueError for
    Dinov2ForImageClassification, whose head reads more than the class token."""
    if said["num_classes"]:
        raise ValueError(
            "the head of Dinov2ForImageClassification reads the class token and the mean of the patches side by side, "
            "which ours has no place for; expected Dinov2Model"
        )
    said = said | {"intermediate_size": int(said["hidden_size"] * said["mlp_ratio"])}
    return Dinov2Config(**vit_fields(fields, said) | {
        "mlp_ratio": said["mlp_ratio"], "num_registers": said["num_register_tokens"],
        "layer_scale": said["layerscale_value"], "swiglu": said["use_swiglu_ffn"],
    })  # fmt: skip


def vivit_config(fields, said, tensors):
    """The ViViTConfig of a config.json. Their `gelu_fast` is the GELU with a tanh, √(2/π) rounded to ten digits."""
    frames, *patch = said["tubelet_size"]
    fields = vit_fields(fields, said) | {"patch_size": as_side(patch)}
    return ViViTConfig(**fields, frames=said["num_frames"], tubelet_frames=frames)


def swin_config(fields, said, tensors):
    """The SwinConfig of a config.json; ValueError for what ours has no place for."""
    expect_only(said | {"hidden_act": read_activation(said)}, hidden_act=("gelu",), use_absolute_embeddings=(False,))
    return SwinConfig(**fields, num_classes=said["num_classes"])


def vit_to_fields(config):
    """The fields of config.json that have no name in common, of DeiT and ViViT, too; ValueError for pooling over the
    patches, and for a head with a hidden layer."""
    expect_place(config, global_pool="token")
    if config.num_classes:
        expect_place(config, head_hidden=None)
    pooler = {} if config.head_hidden is None else {"pooler_output_size": config.head_hidden, "pooler_act": "tanh"}
    return {"intermediate_size": config.mlp_hidden, "hidden_act": write_activation(config), **pooler}


def deit_to_fields(config):
    """Those of ViT; ValueError for registers, for which Hugging Face's DeiT has no place."""
    expect_place(config, num_registers=0)
    return vit_to_fields(config)


def dinov2_to_fields(config):
    """The fields of config.json that have no name in common; ValueError for a model with classes or with pooling over
    the patches, and for an mlp_ratio that isn't whole."""
    expect_place(config, num_classes=0, global_pool="token", head_hidden=None, mlp_ratio=int(config.mlp_ratio))
    registers = {"model_type": "dinov2_with_registers", "architectures": ["Dinov2WithRegistersModel"],
                 "num_register_tokens": config.num_registers} if config.num_registers else {}  # fmt: skip
    return {"mlp_ratio": int(config.mlp_ratio), "use_swiglu_ffn": config.swiglu, **registers,
            "layerscale_value": config.layer_scale, "hidden_act": write_activation(config)}  # fmt: skip


def vivit_to_fields(config):
    """Those of ViT, and the sides of a tubelet."""
    return vit_to_fields(config) | {"num_frames": config.frames, "tubelet_size": config.tubelet}


def swin_to_fields(config):
    """The fields of config.json that have no name in common; ValueError for windows that are smaller in some stages,
    for which Hugging Face's Swin has no place."""
    window = config.window_size
    for i in range(len(config.depths)):
        rows, columns = config.grid(i)
        if min(rows, columns) < window:
            raise ValueError(f"Hugging Face's Swin has no place for a grid of {rows}×{columns} tokens in stage {i}, "
                             f"which is smaller than a window of {window}×{window}")  # fmt: skip
    return {"hidden_size": config.out_chans, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "use_absolute_embeddings": False}  # fmt: skip


def qwen_config(fields, said, tensors):
    """The QwenVisionConfig of a config.json; ValueError for another activation. Without a size, which Transformers
    doesn't say, images are 8 units large: 224 pixels."""
    expect_only(said, hidden_act=("silu",))
    side = 8 * said["patch_size"] * said["spatial_merge_size"]
    return QwenVisionConfig(**fields, num_classes=0, img_size=as_side(said.get("image_size", side)))


def qwen_name(name, config):
    """Their name of an array of ours, or their two for the matrices of a gated MLP."""
    return names_in_table(QWEN_NAMES, name) if ".mlp.fc" in name else (name,)


def qwen_to_fields(config):
    """The fields of config.json that have no name in common; ValueError for what theirs has no place for."""
    expect_place(config, num_classes=0, norm_eps=1e-6)
    return {"architectures": ["Qwen2_5_VisionTransformerPretrainedModel"], "hidden_act": "silu",
            "image_size": config.img_size}  # fmt: skip


def swin_name(name, config):
    """Their name of an array of ours, or their three for queries, keys and values."""
    stage, _, rest = name.removeprefix("layers.").partition(".")
    if rest.startswith("downsample."):
        return (f"encoder.layers.{int(stage) - 1}.{rest}",)  # theirs follows a stage, ours precedes one
    return names_in_table(SWIN_NAMES, name)


def names_by(table):
    """The `names` of a `Layout`, by one table."""
    return lambda name, config: names_in_table(table, name)


VIT = Layout(
    ("vit", "vit_mae"), "vit", DEFAULTS, SAME, names_by(NAMES), vit_config, vit_to_fields, "ViT", spellings=SPELLINGS,
)  # fmt: skip
DEIT = Layout(
    ("deit",), "deit", DEFAULTS, SAME, names_by(DEIT_NAMES), deit_config, deit_to_fields, "DeiT",
    "ForImageClassificationWithTeacher", SPELLINGS,
)  # fmt: skip
DINOV2 = Layout(
    ("dinov2", "dinov2_with_registers"), "dinov2",
    DEFAULTS | {"mlp_ratio": 4.0, "layer_norm_eps": 1e-6, "layerscale_value": 1.0, "use_swiglu_ffn": False,
                "num_register_tokens": 0},
    SAME,
    lambda name, config: names_in_table(GATED_DINO_NAMES if config.swiglu else DINO_NAMES, name),
    dinov2_config, dinov2_to_fields, "Dinov2",
    spellings=ATTENTION_SPELLINGS | {r"\.mlp\.down_proj\.": ".mlp.weights_out."},
    zero_shapes=lambda config: {"embeddings.mask_token": (1, config.embed_dim)}, joins_gates=True,
)  # fmt: skip
VIVIT = Layout(
    ("vivit",), "vivit",
    DEFAULTS | {"num_frames": 32, "tubelet_size": (2, 16, 16), "hidden_act": "gelu_fast", "layer_norm_eps": 1e-6},
    {ours: theirs for ours, theirs in SAME.items() if ours != "patch_size"}, names_by(NAMES),
    vivit_config, vivit_to_fields, "Vivit", "ForVideoClassification", SPELLINGS,
    # Of VivitImageProcessor: pixels from −1 to 1, which are then normalised.
    processor={"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True,
               "rescale_factor": 1 / 127.5, "offset": True},
    processor_fields=lambda config: {"image_processor_type": "VivitImageProcessor"},
)  # fmt: skip
SWIN = Layout(
    ("swin",), "swin", SWIN_DEFAULTS, SWIN_SAME, swin_name, swin_config, swin_to_fields, "Swin",
    spellings=SWIN_SPELLINGS,
)  # fmt: skip
QWEN_VISION = Layout(
    ("qwen2_5_vl_vision", "qwen2_5_vl"), "qwen_vision", QWEN_DEFAULTS, QWEN_SAME, qwen_name,
    qwen_config, qwen_to_fields, "Qwen2_5_Vision",
    processor=CLIP.processor | {"size": None, "do_center_crop": False, "crop_size": None},
    processor_fields=lambda config: {
        "image_processor_type": "Qwen2VLImageProcessor", "size": None, "do_center_crop": False, "crop_size": None,
        "patch_size": config.patch_size, "temporal_patch_size": config.tubelet_frames, "merge_size": config.merge_size,
    },
    part=r"(model\.)?visual\.",
)  # fmt: skip
for layout in (SWIN, VIT, DEIT, DINOV2, VIVIT, QWEN_VISION):
    register_layout(layout)
