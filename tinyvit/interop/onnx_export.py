"""A ViT as an ONNX file, for runtimes without tinyvit."""

import json
from dataclasses import asdict
from pathlib import Path

from tinyvit.functional.patches import as_pair
from tinyvit.interop.names import check_weights, with_position_table
from tinyvit.interop.onnx_graph import Graph, vit
from tinyvit.models import architecture_name

OPSET = 20                         # the first with Gelu
MAX_SINGLE_FILE_BYTES = 2 * 10**9  # of weights in the file itself; no ONNX file can have more than 2³¹

MODEL_DOC = "A Vision Transformer: https://arxiv.org/abs/2010.11929. The metadata say how images are prepared."
IMAGES_DOC = "Images, channels first. A fully lit pixel is 1; then each channel less its mean, divided by its std."
OUTPUT_DOCS = {
    "logits": "Of each class, in the order of the metadata's classes; their softmax are the probabilities.",
    "features": "The input of a head.",
}


def onnx_model(weights):
    """`Weights` as an `onnx.ModelProto`, in float32. Equal weights make equal models, to the byte.

    The input "images" is (batch, C, H, W), float32, normalised; the output "logits" is (batch, K), of a model without a
    head "features". A batch has any size, the images that of the configuration: one with `dynamic_img_size`, too, is
    exported for its `img_size` alone. Nodes and initializers have timm's names. The metadata are the fields of the
    `Preprocessing`, each as JSON: classes, mean, std and so on.

    Raises ValueError for a state or a preprocessing that doesn't fit the configuration, for numbers that are NaN or
    infinite, and if onnx isn't installed.
    """
    architecture = architecture_name(weights.config)
    if architecture != "vit":
        raise ValueError(f"models of the architecture {architecture!r} can't be written in the format 'onnx'")
    check_weights(weights)
    config, state, preprocessing, _ = weights
    onnx = onnx_library()

    state = state if config.positions in ("rope", "none") else with_position_table(weights, "ONNX")
    graph = Graph(state, onnx.helper.make_node)
    vit(graph, config, "images")
    output = "logits" if config.num_classes else "features"
    graph.nodes[-1].output[:] = [output]
    width = config.num_classes or config.head_hidden or config.embed_dim
    images = value_info(onnx, "images", (config.in_chans, *as_pair(config.img_size)), IMAGES_DOC)
    result = value_info(onnx, output, (width,), OUTPUT_DOCS[output])
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "vit", [images], [result], doc_string=str(config)),
        opset_imports=[opset],
        # The format's version that goes with the opset: the newest would only keep older runtimes from reading it.
        ir_version=onnx.helper.find_min_ir_version_for([opset]),
        producer_name="tinyvit",
        doc_string=MODEL_DOC,
    )
    for name, array in graph.constants.items():  # make_graph and make_model would copy them once more each
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.helper.set_model_props(model, {k: json.dumps(v) for k, v in asdict(preprocessing).items()})
    return model


def write_onnx(weights, path, one_file=MAX_SINGLE_FILE_BYTES):
    """Write `Weights` into a new file as `onnx_model` makes them.

    one_file   bytes of weights that the file itself may hold; more go into a second one, PATH.data, which must stay
               beside it

    Raises ValueError as `onnx_model` does.
    """
    model = onnx_model(weights)
    is_large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > one_file
    onnx_library().save_model(model, path, save_as_external_data=is_large, location=f"{Path(path).name}.data")


def onnx_library():
    """The package onnx; ValueError, which says how to get it, if it isn't there."""
    try:
        import onnx
    except ImportError as error:
        raise ValueError("ONNX takes the package onnx, which isn't installed: pip install 'tinyvit[onnx]'") from error
    return onnx


def value_info(onnx, name, shape, doc_string):
    """The declaration of a graph's input or output: float32, (batch, …)."""
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", *shape), doc_string)
