"""Hugging Face's CLIPModel."""

from tinyvit.data.images import RESAMPLE
from tinyvit.functional.patches import as_pair
from tinyvit.interop import huggingface
from tinyvit.interop.fields import check_fields
from tinyvit.interop.names import mlp_ratio, names_in_table
from tinyvit.models import ClipConfig
from tinyvit.text import shorten

NAMES = {
    "logit_scale": "logit_scale", "visual.cls_token": "vision_model.embeddings.class_embedding",
    "visual.pos_embed": "vision_model.embeddings.position_embedding.weight",
    "visual.patch_embed.proj": "vision_model.embeddings.patch_embedding",
    "visual.norm_pre": "vision_model.pre_layrnorm",  # spelled like this
    "visual.norm": "vision_model.post_layernorm", "visual.proj": "visual_projection",
    "text.token_embed": "text_model.embeddings.token_embedding",
    "text.pos_embed": "text_model.embeddings.position_embedding.weight",
    "text.norm": "text_model.final_layer_norm", "text.proj": "text_projection",
}  # fmt: skip
for ours, theirs in (("visual.blocks.{}", "vision_model.encoder.layers.{}"),
                     ("text.blocks.{}", "text_model.encoder.layers.{}")):  # fmt: skip
    NAMES |= {
        f"{ours}.norm1": f"{theirs}.layer_norm1", f"{ours}.norm2": f"{theirs}.layer_norm2",
        f"{ours}.attn.qkv": tuple(f"{theirs}.self_attn.{one}_proj" for one in "qkv"),
        f"{ours}.attn.proj": f"{theirs}.self_attn.out_proj",
        f"{ours}.mlp.fc1": f"{theirs}.mlp.fc1", f"{ours}.mlp.fc2": f"{theirs}.mlp.fc2",
    }  # fmt: skip
# Their fields of a tower by ours, and their defaults.
VISION = {"embed_dim": "hidden_size", "depth": "num_hidden_layers", "num_heads": "num_attention_heads",
          "in_chans": "num_channels", "img_size": "image_size", "patch_size": "patch_size"}  # fmt: skip
TEXT = {"text_dim": "hidden_size", "text_depth": "num_hidden_layers", "text_heads": "num_attention_heads",
        "context_length": "max_position_embeddings", "vocab_size": "vocab_size"}  # fmt: skip
COMMON = {"num_hidden_layers": 12, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
VISION_DEFAULTS = COMMON | {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
                            "num_channels": 3, "image_size": 224, "patch_size": 32}  # fmt: skip
TEXT_DEFAULTS = COMMON | {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
                          "vocab_size": 49408, "max_position_embeddings": 77}  # fmt: skip
LARGEST_TOKEN_ENDS = 2  # what eos_token_id meant in older files: the end is the token with the largest number


def clip_config(fields, said, tensors):
    """The ClipConfig of a config.json; ValueError for towers that differ in what ours have in common."""
    vision, text = (
        defaults | check_fields(said[name], huggingface.field_types(defaults), name)
        for name, defaults in (("vision_config", VISION_DEFAULTS), ("text_config", TEXT_DEFAULTS))
    )
    last = text["vocab_size"] - 1
    huggingface.expect_only({"eos_token_id": last} | text, eos_token_id=(LARGEST_TOKEN_ENDS, last))
    for one in (vision, text):
        one["mlp_ratio"] = one["intermediate_size"] / one["hidden_size"]
    for name in ("mlp_ratio", "hidden_act", "layer_norm_eps"):
        if vision[name] != text[name]:
            got = shorten(repr((vision[name], text[name])))
            raise ValueError(f"expected the same {name} in both towers, got {got}")
    fields |= {ours: vision[theirs] for ours, theirs in VISION.items()}
    fields |= {ours: text[theirs] for ours, theirs in TEXT.items()}
    return ClipConfig(
        **fields, vocabulary=text.get("vocabulary", ()), activation=huggingface.read_activation(vision),
        mlp_ratio=mlp_ratio(vision["intermediate_size"], vision["hidden_size"]), norm_eps=vision["layer_norm_eps"],
    )  # fmt: skip


def clip_to_fields(config):
    """The configurations of both towers; ValueError for images and patches that aren't squares.

    A vocabulary of words, which Transformers doesn't read, is in the field `vocabulary` of text_config. A tokenizer of
    byte pairs isn't among the weights, and isn't written.
    """
    huggingface.expect_place(config, img_size=as_pair(config.img_size)[0], patch_size=as_pair(config.patch_size)[0])
    common = {"hidden_act": huggingface.write_activation(config), "layer_norm_eps": config.norm_eps,
              "projection_dim": config.projection_dim}  # fmt: skip
    vision = common | {theirs: getattr(config, ours) for ours, theirs in VISION.items()} | {
        "model_type": "clip_vision_model", "intermediate_size": int(config.embed_dim * config.mlp_ratio),
    }  # fmt: skip
    text = common | {theirs: getattr(config, ours) for ours, theirs in TEXT.items()} | {
        "model_type": "clip_text_model", "intermediate_size": int(config.text_dim * config.mlp_ratio),
        "bos_token_id": config.vocab_size - 2, "eos_token_id": config.vocab_size - 1, "pad_token_id": 0,
    }  # fmt: skip
    text |= {"vocabulary": config.vocabulary} if config.vocabulary else {}
    return {"vision_config": vision, "text_config": text}


def their_shape(name, shape):
    """Their shape of an array with this name of ours: tokens and positions have no leading 1."""
    return shape[-1:] if name == "visual.cls_token" else shape[1:] if name.endswith("pos_embed") else shape


def with_shortest_edge(processor):
    """The fields of a preprocessor_config.json, in which a single number as size, as older files have it, is that of
    the shorter side."""
    size = processor["size"]
    return processor | {"size": {"shortest_edge": size} if isinstance(size, int) else size}


CLIP = huggingface.Layout(
    ("clip",), "clip",
    {"vision_config": {}, "text_config": {}, "projection_dim": 512}, {"projection_dim": "projection_dim"},
    lambda name, config: names_in_table(NAMES, name), clip_config, clip_to_fields, "CLIP",
    processor={"size": {"shortest_edge": 224}, "resample": RESAMPLE.index("bicubic"), "do_center_crop": True,
               "crop_size": {"height": 224, "width": 224}, "image_mean": [0.48145466, 0.4578275, 0.40821073],
               "image_std": [0.26862954, 0.26130258, 0.27577711]},
    prepare=with_shortest_edge, shape=their_shape,
)  # fmt: skip
huggingface.register_layout(CLIP)
