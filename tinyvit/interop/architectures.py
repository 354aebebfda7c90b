"""Which architecture weights are of, by what a configuration says and by the names of the arrays."""

import re

from tinyvit.interop.stored import listed
from tinyvit.interop.strict_json import short

# Hugging Face's `model_type`, and what those that look most like a ViT have that a ViT doesn't.
MODEL_TYPES = {
    "deit": "DeiT, which has a distillation token",
    "swin": "Swin Transformer", "swinv2": "Swin Transformer v2", "beit": "BEiT", "data2vec-vision": "data2vec",
    "dinov2": "DINOv2, which scales its layers", "dinov2_with_registers": "DINOv2 with registers",
    "dinov3_vit": "DINOv3", "dinov3_convnext": "DINOv3's ConvNeXt", "vit_mae": "a masked autoencoder (MAE)",
    "vit_msn": "MSN", "vit_hybrid": "a hybrid of ResNet and ViT", "vitdet": "ViTDet", "ijepa": "I-JEPA",
    "clip": "CLIP", "clip_vision_model": "CLIP's image tower", "siglip": "SigLIP",
    "siglip_vision_model": "SigLIP's image tower", "convnext": "ConvNeXt", "convnextv2": "ConvNeXt v2",
    "resnet": "ResNet", "mobilevit": "MobileViT", "efficientnet": "EfficientNet", "levit": "LeViT", "cvt": "CvT",
    "pvt": "PVT", "segformer": "SegFormer", "poolformer": "PoolFormer", "regnet": "RegNet", "sam": "Segment Anything",
    "yolos": "YOLOS", "detr": "DETR", "dpt": "DPT", "timm_wrapper": "timm's, wrapped",
}  # fmt: skip
# What only an architecture's own names have in them; the first that fits is named.
MARKS = [
    (r"(^|\.)lora_[AB]\b|(^|\.)lora_(up|down)\b", "LoRA's changes to a model, not a model"),
    (r"^(.*\.)?(text_model|text_projection|transformer\.resblocks|visual)\b", "CLIP, or another of images and texts"),
    (r"^vision_model\.|(^|\.)embeddings\.patch_embedding\.|^attn_pool\.", "the image tower of CLIP or SigLIP"),
    (r"(^|\.)decoder_(blocks|embed|pos_embed|pred)\b|^decoder\.(?!0\.)|(^|\.)vit_mae\.", "a masked autoencoder (MAE)"),
    (r"(^|\.)dist(illation)?_token$|^head_dist\.|^distillation_classifier\.|^deit\.", "DeiT with a distillation token"),
    (r"register_tokens$|(^|\.)reg_token$|^storage_tokens$", "DINOv2 or DINOv3 with registers"),
    (r"\.ls[12]\.gamma$|\.layer_scale[12]\.lambda1$", "DINOv2, or another ViT that scales its layers"),
    (r"downsample\.reduction|downsample\.norm|^swin\.|^layers\.\d+\.blocks\.\d+\.", "Swin Transformer"),
    (r"\.gamma_[12]$|\.lambda_[12]$|relative_position_bias|\.attn\.q_bias$|^beit\.", "BEiT, EVA or CaiT"),
    (r"\.dwconv\.|\.conv_dw\.weight$|^convnext\.|^stages\.\d+\.blocks\.\d+\.gamma$", "ConvNeXt, or the like"),
    (r"^(resnet\.|layer[1-4]\.\d+\.(conv|bn)\d|patch_embed\.backbone\.|(conv|gn)_root/|block\d/unit)",
     "ResNet, or with it"),
    (r"running_mean$|^features\.\d+\.", "a convolutional network"),
    (r"mlp_tokens\.|^MixerBlock_\d+/", "MLP-Mixer"),
    (r"^conv_proj\.|encoder_layer_\d+\.", "torchvision's ViT, whose names tinyvit doesn't know"),
    (r"^(image_encoder|mask_decoder)\.", "Segment Anything"),
    (r"MAPHead_0|\.attn_pool\.", "a ViT that pools by attention"),
    (r"^(model\.(layers|embed_tokens)|transformer\.h|language_model|bert|roberta|lm_head)\.", "a language model"),
    (r"^(down_blocks|up_blocks|mid_block)\.", "a diffusion model"),
]
LAYOUTS = {
    "timm": re.compile(r"(patch_embed\.proj\.weight|blocks\.\d+\.attn\.qkv\.weight)$"),
    "huggingface": re.compile(r"(vit\.)?embeddings\.patch_embeddings\.projection\.weight$"),
    "original": re.compile(r"(.*/)?(embedding/kernel|Transformer/encoder_norm/scale)$"),
}
CHECKPOINT = re.compile(r"(params|opt)/")
PREFIX = re.compile(r"(module|_orig_mod|model|backbone|encoder|student|teacher)\.(?=cls_token|blocks\.|patch_embed\.)")


def layout_of(names, source):
    """ "timm", "huggingface" or "original", by the names of all arrays.

    Raises ValueError, naming `source` and the architecture if it is a known one, for weights of anything else.
    """
    for mark, what in MARKS:
        found = [name for name in names if re.search(mark, name)]
        if found:
            raise ValueError(f"{source} holds {what} (as {listed(found, 2)} tells); tinyvit reads ViTs only")
    nested = [name for name in names if CHECKPOINT.match(name)]
    if nested:
        raise ValueError(
            f"{source} holds a checkpoint of training or of big_vision, as {listed(nested, 2)} tells; only the "
            "parameters themselves can be read: save these, with nothing in front of their names"
        )
    for layout, pattern in LAYOUTS.items():
        if any(pattern.match(name) for name in names):
            return layout
    prefixed = [name for name in names if PREFIX.match(name)]
    if prefixed:
        prefix = PREFIX.match(prefixed[0])[0]
        raise ValueError(f"{source} has timm's names with {prefix!r} in front of them (as {listed(prefixed, 2)}); "
                         "take that away, and save it again")  # fmt: skip
    raise ValueError(
        f"{source} has names of an unknown layout: {listed(list(names))}; expected those of timm "
        "(patch_embed.proj.weight), of Hugging Face (vit.embeddings…) or of the original (embedding/kernel)"
    )


def check_model_type(config, source):
    """Raise ValueError, saying what it is of, for a Hugging Face configuration that is of no ViT."""
    kind = config.get("model_type")
    if kind == "vit":
        return
    known = isinstance(kind, str) and kind in MODEL_TYPES
    what = f"{MODEL_TYPES[kind]} (model_type {kind!r})" if known else f"model_type {short(repr(kind))}"
    raise ValueError(f"{source} is of {what}; tinyvit reads ViTs only (model_type 'vit')")
