import pytest
from small_weights import WEIGHTS

from tinyvit.interop import huggingface, original, timm
from tinyvit.interop.architectures import MODEL_TYPES, check_model_type, layout_of

TIMM = list(timm.write(WEIGHTS)[0])
ORIGINAL = list(original.write(WEIGHTS))


def test_the_layouts_are_told_by_their_names():
    assert layout_of(TIMM, "source") == "timm"
    names = list(huggingface.write(WEIGHTS)[0])
    assert layout_of(names, "source") == layout_of([name.removeprefix("vit.") for name in names], "source")
    assert layout_of(names, "source") == "huggingface"
    assert layout_of(ORIGINAL, "source") == "original"


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([*TIMM, "dist_token", "head_dist.weight"], "DeiT with a distillation token"),
        (["deit.embeddings.cls_token", "deit.embeddings.distillation_token"], "DeiT with a distillation token"),
        (["patch_embed.proj.weight", "layers.0.blocks.0.attn.qkv.weight", "layers.1.downsample.norm.bias"], "Swin"),
        (["swin.embeddings.norm.weight", "swin.encoder.layers.0.blocks.0.layernorm_before.weight"], "Swin"),
        ([*TIMM, "blocks.0.gamma_1", "blocks.0.attn.q_bias"], "BEiT"),
        (["beit.encoder.layer.0.lambda_1"], "BEiT"),
        ([*TIMM, "mask_token", "decoder_embed.weight", "decoder_blocks.0.norm1.bias"], r"a masked autoencoder \(MAE\)"),
        (["vit.embeddings.cls_token", "decoder.decoder_layers.0.output.dense.weight"], r"a masked autoencoder \(MAE\)"),
        ([*TIMM, "blocks.0.ls1.gamma"], "DINOv2, or another ViT that scales its layers"),
        ([*TIMM, "blocks.0.ls1.gamma", "reg_token"], "DINOv2 or DINOv3 with registers"),
        (["embeddings.register_tokens", "encoder.layer.0.layer_scale1.lambda1"], "DINOv2 or DINOv3 with registers"),
        (["visual.transformer.resblocks.0.ln_1.weight", "text_projection"], "CLIP"),
        (["vision_model.encoder.layers.0.layer_norm1.weight"], "the image tower of CLIP or SigLIP"),
        (["text_model.embeddings.token_embedding.weight", "vision_model.embeddings.class_embedding"], "CLIP"),
        (["embeddings.class_embedding", "embeddings.patch_embedding.weight"], "the image tower of CLIP or SigLIP"),
        ([*TIMM, "attn_pool.latent"], "the image tower of CLIP or SigLIP"),
        (["stages.0.blocks.0.conv_dw.weight", "stages.0.blocks.0.gamma", "head.fc.weight"], "ConvNeXt"),
        (["convnext.encoder.stages.0.layers.0.dwconv.weight"], "ConvNeXt"),
        (["conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight"], "ResNet"),
        (["resnet.embedder.embedder.convolution.weight"], "ResNet"),
        (["conv_root/kernel", "embedding/kernel"], "ResNet"),
        ([*ORIGINAL, "gn_root/scale"], "ResNet"),
        ([*ORIGINAL, "MAPHead_0/probe"], "a ViT that pools by attention"),
        (["features.0.weight", "classifier.weight"], "a convolutional network"),
        (["MixerBlock_0/token_mixing/Dense_0/kernel", "head/kernel"], "MLP-Mixer"),
        (["class_token", "conv_proj.weight", "encoder.layers.encoder_layer_0.ln_1.weight"], "torchvision's ViT"),
        (["image_encoder.blocks.0.attn.qkv.weight", "mask_decoder.iou_token.weight"], "Segment Anything"),
        (["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"], "a language model"),
        (["bert.embeddings.word_embeddings.weight"], "a language model"),
        (["down_blocks.0.resnets.0.conv1.weight", "mid_block.a"], "a diffusion model"),
        (["base_model.model.vit.encoder.layer.0.attention.attention.query.lora_A.weight"], "LoRA's changes"),
    ],
)
def test_weights_of_another_architecture_are_refused_by_its_name(names, what):
    with pytest.raises(ValueError, match=rf"^source holds {what}.* \(as .* tells\); tinyvit reads ViTs only"):
        layout_of(names, "source")


@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_a_checkpoint_of_training_is_refused_with_what_tells_it_and_what_to_do(prefix):
    with pytest.raises(ValueError, match=f"^source holds a checkpoint .* big_vision, as {prefix}.* tells; only the"):
        layout_of([prefix + name for name in ORIGINAL], "source")


def test_names_with_something_in_front_are_refused_with_what_to_take_away():
    with pytest.raises(ValueError, match=r"timm's names with 'module\.' in front of them \(as module\.cls_token"):
        layout_of([f"module.{name}" for name in TIMM], "source")


def test_names_of_an_unknown_layout_are_listed_a_few_of_them():
    with pytest.raises(ValueError, match=r"^source has names of an unknown layout: layer\.0, .* and 995 more; "):
        layout_of([f"layer.{i}" for i in range(1000)], "source")
    with pytest.raises(ValueError) as error:
        layout_of(["x" * 100_000], "source")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_a_configuration_of_another_architecture_is_refused_by_its_name(kind):
    with pytest.raises(ValueError, match=rf"^source is of {MODEL_TYPES[kind].split('(')[0]}.*model_type '{kind}'"):
        check_model_type({"model_type": kind}, "source")


@pytest.mark.parametrize("kind", ["unheard-of", None, 3, ["vit"], {"a": 1}])
def test_an_unknown_architecture_is_refused_by_what_it_calls_itself(kind):
    with pytest.raises(ValueError, match=r"^source is of model_type .*; tinyvit reads ViTs only"):
        check_model_type({"model_type": kind}, "source")
    check_model_type({"model_type": "vit"}, "source")
