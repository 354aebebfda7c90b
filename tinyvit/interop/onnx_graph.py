"""The forward pass of a ViT as the nodes of an ONNX graph, opset 20. https://onnx.ai/onnx/operators

Each function adds the `forward` of one module to a `Graph`. The blocks work on rows (B·N, D), one for each token, since
Gemm reads matrices: a linear layer is then one node, with timm's weight (out, in).
On onnxruntime's CPU that is 4 % faster than MatMul and Add; a convolution is as fast as cutting patches.
"""

import numpy as np

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.interop.names import activation_name

APPROXIMATE = {"gelu": "none", "gelu_tanh": "tanh"}


class Graph:
    """Nodes, and constant arrays by name, in the order in which they are added; made of the weights in `state`.

    Every node has one output, and that has the node's name. `make_node` is that of onnx.helper.
    """

    def __init__(self, state, make_node):
        self.state, self.make_node = state, make_node
        self.nodes, self.constants = [], {}

    def node(self, operator, name, *inputs, **attributes):
        """Add an operator; returns the name of its output, which is the node's own."""
        self.nodes.append(self.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name, values):
        """Add an array, numbers as float32 and integers as int64; returns its name."""
        values = np.asarray(values, order="C")
        self.constants[name] = values.astype("float32" if values.dtype.kind == "f" else "int64", copy=False)
        return name

    def weight(self, name):
        """Add the weight of this name; returns the name."""
        return self.constant(name, self.state[name])

    def reshape(self, name, x, shape):
        return self.node("Reshape", name, x, self.constant(f"{name}.shape", shape))

    def take(self, name, x, index, axis):
        """The entries at one index of an axis, without that axis."""
        return self.node("Gather", name, x, self.constant(f"{name}.index", index), axis=axis)

    def linear(self, name, x, bias=True):
        """Rows x (B, in) times the weight (out, in) transposed."""
        parameters = [self.weight(f"{name}.{part}") for part in ("weight", "bias")[: 1 + bias]]
        return self.node("Gemm", name, x, *parameters, transB=1)

    def layernorm(self, name, x, eps):
        return self.node("LayerNormalization", name, x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"),
                         epsilon=eps)  # fmt: skip


def vit(graph, config, images):
    """Images (B, C, H, W) to logits (B, K), or without a head to features (B, D); returns the output's name."""
    tokens = embed(graph, config, images)                                             # (B, N, D)
    N, D = num_tokens(config), config.embed_dim
    x = graph.reshape("tokens", tokens, (-1, D))                                      # (B·N, D)
    rope = rope_constants(graph, config) if config.positions == "rope" else None
    for i in range(config.depth):
        x = block(graph, config, f"blocks.{i}", x, rope)
    x = graph.layernorm("norm", x, config.norm_eps)
    x = graph.reshape("norm.tokens", x, (-1, N, D))
    features = pool(graph, config, x)
    if config.head_hidden is not None:
        features = graph.node("Tanh", "pre_logits.act", graph.linear("pre_logits.fc", features))
    return graph.linear("head", features) if config.num_classes else features


def num_tokens(config):
    rows, columns = config.grid
    return 1 + rows * columns


def embed(graph, config, images):
    """Patches by a convolution with its kernel's size as stride, the class token in front, positions added."""
    N, D, patch = num_tokens(config), config.embed_dim, as_pair(config.patch_size)
    x = graph.node("Conv", "patch_embed.proj", images, graph.weight("patch_embed.proj.weight"),
                   graph.weight("patch_embed.proj.bias"), kernel_shape=patch, strides=patch)  # fmt: skip
    x = graph.reshape("patch_embed.flatten", x, (0, D, N - 1))                        # (B, D, N-1)
    x = graph.node("Transpose", "patch_embed.tokens", x, perm=[0, 2, 1])
    batch = graph.node("Shape", "batch", images, start=0, end=1)
    shape = graph.node("Concat", "cls_token.shape", batch, graph.constant("cls_token.ones", [1, 1]), axis=0)
    cls_token = graph.node("Expand", "cls_token.expanded", graph.weight("cls_token"), shape)
    x = graph.node("Concat", "tokens.with_cls_token", cls_token, x, axis=1)           # (B, N, D)
    if config.positions in ("rope", "none"):
        return x
    return graph.node("Add", "tokens.with_positions", x, graph.weight("pos_embed"))


def block(graph, config, name, x, rope):
    a = graph.layernorm(f"{name}.norm1", x, config.norm_eps)
    a = attention(graph, config, f"{name}.attn", a, rope)
    x = graph.node("Add", f"{name}.add_attn", x, a)
    m = graph.layernorm(f"{name}.norm2", x, config.norm_eps)
    m = graph.linear(f"{name}.mlp.fc1", m)
    m = graph.node("Gelu", f"{name}.mlp.act", m, approximate=activation_name("ONNX", APPROXIMATE, config))
    m = graph.linear(f"{name}.mlp.fc2", m)
    return graph.node("Add", f"{name}.add_mlp", x, m)


def attention(graph, config, name, x, rope):
    N, D, d = num_tokens(config), config.embed_dim, config.head_dim
    qkv = graph.linear(f"{name}.qkv", x, config.qkv_bias)                             # (B·N, 3D)
    qkv = graph.reshape(f"{name}.qkv.heads", qkv, (-1, N, 3, config.num_heads, d))
    qkv = graph.node("Transpose", f"{name}.qkv.parts", qkv, perm=[2, 0, 3, 1, 4])     # (3, B, H, N, d)
    q, k, v = (graph.take(f"{name}.{part}", qkv, i, axis=0) for i, part in enumerate("qkv"))
    if rope:
        q, k = rotate(graph, q, *rope), rotate(graph, k, *rope)
    k = graph.node("Transpose", f"{name}.k.transposed", k, perm=[0, 1, 3, 2])         # (B, H, d, N)
    scores = graph.node("MatMul", f"{name}.scores", q, k)                             # (B, H, N, N)
    scores = graph.node("Mul", f"{name}.scores.scaled", scores, graph.constant(f"{name}.scale", d**-0.5))
    probs = graph.node("Softmax", f"{name}.probs", scores, axis=-1)
    heads = graph.node("MatMul", f"{name}.heads", probs, v)                           # (B, H, N, d)
    heads = graph.node("Transpose", f"{name}.heads.tokens", heads, perm=[0, 2, 1, 3])
    return graph.linear(f"{name}.proj", graph.reshape(f"{name}.heads.joined", heads, (-1, D)))


def rope_constants(graph, config):
    """Cosines and sines of every number of every token, (N, d) each, and the quarter turn of all pairs (d, d)."""
    N, d = num_tokens(config), config.head_dim
    turned, _ = F.rope(np.tile([1.0, 0.0], (1, 1, N, d // 2)), config.grid)           # (1, 0) becomes (cos, sin)
    cos, sin = (np.repeat(turned[0, 0, :, i::2], 2, axis=-1) for i in (0, 1))
    quarter_turn = np.kron(np.eye(d // 2), [[0.0, 1.0], [-1.0, 0.0]])                 # (a, b) becomes (−b, a)
    return graph.constant("rope.cos", cos), graph.constant("rope.sin", sin), graph.constant("rope.turn", quarter_turn)


def rotate(graph, x, cos, sin, quarter_turn):
    """Every pair (a, b) of x to (a, b) cos + (−b, a) sin."""
    turned = graph.node("MatMul", f"{x}.turned", x, quarter_turn)
    straight, across = graph.node("Mul", f"{x}.cos", x, cos), graph.node("Mul", f"{x}.sin", turned, sin)
    return graph.node("Add", f"{x}.rotated", straight, across)


def pool(graph, config, x):
    """Tokens (B, N, D) to features (B, D)."""
    if config.global_pool == "token":
        return graph.take("pool", x, 0, axis=1)
    first, last, axis = (graph.constant(f"pool.{name}", [i]) for name, i in
                         (("first", 1), ("last", num_tokens(config)), ("axis", 1)))    # fmt: skip
    patches = graph.node("Slice", "pool.patches", x, first, last, axis)
    return graph.node("ReduceMean", "pool", patches, axis, keepdims=0)
