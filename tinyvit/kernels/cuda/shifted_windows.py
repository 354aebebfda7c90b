"""Windows of tokens and back, with the roll and the padding, each in one pass."""

from tinyvit.backend import array_module
from tinyvit.functional.patches import as_pair
from tinyvit.functional.shifted_windows import (
    FromWindowsCache,
    ToWindowsCache,
    check_window,
    check_windows,
    from_windows,
    from_windows_backward,
    to_windows,
    to_windows_backward,
    windows_shape,
)
from tinyvit.kernels.cuda.source import KINDS, PACKED, Source, blocks, contiguous, pack_of, type_of

SOURCE = Source("shifted_windows.cu", PACKED)
BLOCK = 256


def to_windows_cuda(x, window, shift=0):
    cache = ToWindowsCache(x.shape, check_window("to_windows", x, window, shift), shift)
    return cut(x, cache), cache


def to_windows_backward_cuda(dy, cache):
    return join(dy, cache)


def from_windows_cuda(x, sides, window, shift=0):
    sides, window = as_pair(sides), as_pair(window)
    cache = FromWindowsCache(check_windows("from_windows", x, sides, window, shift), window, shift)
    return join(x, cache), cache


def from_windows_backward_cuda(dy, cache):
    return cut(dy, cache)


def cut(x, cache):
    """The windows of tokens x."""
    x, windows = contiguous(x), array_module(x).empty(windows_shape(cache), x.dtype)
    launch("cut_windows", x, windows, windows.size, cache)
    return windows


def join(windows, cache):
    """The tokens (B, H, W, D) of windows."""
    windows, x = contiguous(windows), array_module(windows).empty(cache.shape, windows.dtype)
    launch("join_windows", windows, x, windows.size, cache)
    return x


def launch(name, source, goal, count, cache):
    (_, H, W, D), (p, q), shift = cache
    pack = pack_of(D, source, goal)
    numbers = count, H, W, p, q, blocks(H, p), blocks(W, q), shift, D
    SOURCE.launch(name, blocks(count, pack * BLOCK), BLOCK, source, goal, *numbers, T=type_of(goal), PACK=pack)


for kind in KINDS:
    to_windows.register(kind, to_windows_cuda)
    to_windows_backward.register(kind, to_windows_backward_cuda)
    from_windows.register(kind, from_windows_cuda)
    from_windows_backward.register(kind, from_windows_backward_cuda)
