"""Weights of timm, of Hugging Face and of the original release, in and out."""

from tinyvit.interop import huggingface_clip, huggingface_convnets, huggingface_vits, original, timm, timm_by_name
from tinyvit.interop.loading import load, open_source
from tinyvit.interop.mappings import Weights, weights_of
from tinyvit.interop.onnx_export import onnx_model
from tinyvit.interop.saving import save
