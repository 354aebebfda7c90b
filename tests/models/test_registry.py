import numpy as np
import pytest

from tinyvit import create_model
from tinyvit.models import list_models

PARAMETERS = {
    "vit_tiny_patch16_224": 5_717_416,
    "vit_small_patch16_224": 22_050_664,
    "vit_base_patch16_224": 86_567_656,
    "vit_base_patch32_224": 88_224_232,
    "vit_large_patch16_224": 304_326_632,
    "vit_large_patch32_224": 306_535_400,
    "vit_huge_patch14_224": 632_045_800,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet20_32": 272_474,
    "resnet8_digits": 308_074,
    "resnetv2_50x1_bit": 25_549_352,
    "resnetv2_50x3_bit": 217_319_080,
    "resnetv2_101x1_bit": 44_541_480,
    "vit_base_r50_s16_224": 98_659_112,
    "hybrid_small_32": 855_466,
    "hybrid_digits": 182_842,
    "deit_tiny_distilled_patch16_224": 5_910_800,
    "deit_small_distilled_patch16_224": 22_436_432,
    "deit_base_distilled_patch16_224": 87_338_192,
    "swin_tiny_patch4_window7_224": 28_288_354,
    "swin_small_patch4_window7_224": 49_606_258,
    "swin_base_patch4_window7_224": 87_768_224,
    "swin_small_32": 2_246_822,
    "coatnet_0_224": 24_446_356,
    "coatnet_small_32": 518_550,
    "vit_small_patch14_dinov2": 22_056_192,
    "vit_small_patch14_reg4_dinov2": 22_057_728,
    "vit_base_patch14_dinov2": 86_579_712,
    "vit_base_patch14_reg4_dinov2": 86_582_784,
    "vit_large_patch14_dinov2": 304_367_616,
    "vit_large_patch14_reg4_dinov2": 304_371_712,
    "vit_giant_patch14_dinov2": 1_136_479_232,
    "vit_giant_patch14_reg4_dinov2": 1_136_485_376,
    # Counted with Transformers' CLIPModel, both towers.
    "clip_vit_base_patch32_224": 151_277_313,
    "clip_vit_base_patch16_224": 149_620_737,
    "clip_vit_large_patch14_224": 427_616_513,
    "clip_vit_large_patch14_336": 427_944_193,
    "qwen2_5_vl_vision": 668_684_288,  # as Transformers counts
    "qwen2_5_vl_vision_7b": 676_550_144,
    "qwen2_5_vl_vision_small": 218_976 + 330,
    "vivit_base_patch16x2_224": 88_954_000,
    "vivit_factorised_base_patch16x2_224": 115_062_928,
    "DiT-S/2": 32_865_056,
    "DiT-S/4": 32_920_448,
    "DiT-S/8": 33_142_016,
    "DiT-B/2": 130_315_808,
    "DiT-B/4": 130_426_496,
    "DiT-B/8": 130_869_248,
    "DiT-L/2": 457_840_672,
    "DiT-L/4": 457_988_224,
    "DiT-L/8": 458_578_432,
    "DiT-XL/2": 674_834_720,
    "DiT-XL/4": 675_000_704,
    "DiT-XL/8": 675_664_640,
}
PARAMETERS |= {name.lower().replace("-", "_").replace("/", "_"): count for name, count in PARAMETERS.items()}  # dit_s_2


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_models_of_the_papers_have_the_exact_numbers_of_parameters(name):
    assert create_model(name, device="meta").num_parameters() == PARAMETERS[name]


def test_every_model_has_its_expected_number_of_parameters():
    assert set(list_models()) - {"tiny_8"} == set(PARAMETERS)
    assert list_models("*_digits") == ["hybrid_digits", "resnet8_digits"] and list_models("mixer*") == []


def test_fields_replace_those_of_the_named_model():
    model = create_model("vit_tiny_patch16_224", num_classes=10, img_size=32, seed=3, dtype="float64")
    assert model.predict(np.zeros((1, 3, 32, 32))).shape == (1, 10)
    assert model.config.embed_dim == 192 and model.dtype == "float64"


def test_an_unknown_model_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="unknown model 'vit_base_patch61_224'; did you mean vit_base_patch16_224?"):
        create_model("vit_base_patch61_224")
    with pytest.raises(ValueError, match="unknown model 'tiny_vit_5m_224'; the TinyViT of Wu et al. 2022 is another"):
        create_model("tiny_vit_5m_224")
    with pytest.raises(ValueError, match="unknown model 'mixer'; expected one of "):
        create_model("mixer")


def test_an_unknown_field_is_named():
    with pytest.raises(ValueError, match="unknown field of ViTConfig 'n_classes'; did you mean num_classes?"):
        create_model("vit_tiny_patch16_224", n_classes=10)
    with pytest.raises(ValueError, match=r"tinyvit.load\(PATH\) gives a model with trained ones"):
        create_model("vit_tiny_patch16_224", pretrained=True)

