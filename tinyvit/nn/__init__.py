"""The layers: they own parameters and wiring, never activations."""

from tinyvit.nn import init
from tinyvit.nn.attention import Attention
from tinyvit.nn.block import Block, Mlp
from tinyvit.nn.buffers import BufferUpdate, buffer_updates
from tinyvit.nn.context import Context
from tinyvit.nn.conv import Conv2d, StandardizedConv2d
from tinyvit.nn.layers import Dropout, DropPath, Identity, LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.norms import BatchNorm2d, GroupNorm
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.nn.precision import PRECISIONS, Precision
from tinyvit.nn.recompute import RecomputedCache, recompute_cache, with_recompute
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.storage import Storage
from tinyvit.nn.tree import tree
from tinyvit.nn.variables import Buffer, Parameter
from tinyvit.nn.watch import watch
