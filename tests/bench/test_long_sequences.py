import sys
import tracemalloc
from functools import cache

import pytest

from tinyvit import ViTConfig, kernels
from tinyvit.bench import long_sequences
from tinyvit.bench.long_sequences import WAYS, prepared
from tinyvit.nn import attention


@cache
def peak(tokens, way):
    """Peak memory in bytes of a step of a tiny ViT with this many patches."""
    tiled_from, recompute, level = WAYS[way]
    config = ViTConfig((tokens // 32, 32), 1, in_chans=1, embed_dim=8, depth=6, num_heads=2)
    with kernels.using(level), pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "TILED_FROM", tiled_from)
        step = prepared(config, recompute)
        step()  # loads libraries
        tracemalloc.start()
        try:
            step()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def growth(way):
    """Extra memory of the second doubling of the tokens relative to the first: 2 if linear, 4 if quadratic."""
    small, middle, large = (peak(tokens, way) for tokens in (512, 1024, 2048))
    return (large - middle) / (middle - small)


@pytest.mark.parametrize("way", ["in tiles", "in tiles, recomputed", "compiled, recomputed"])
def test_the_memory_of_a_step_grows_linearly_with_the_tokens_where_attention_goes_in_tiles(way):
    assert 1.8 < growth(way) < 2.2


def test_it_grows_quadratically_where_all_scores_are_in_memory_at_once():
    assert growth("all scores at once") > 3.5


def test_recomputation_saves_memory_on_top():
    tiled, recomputed = (peak(2048, way) for way in ("in tiles", "in tiles, recomputed"))
    assert recomputed < 0.6 * tiled


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_row_has_the_memory_of_each_way(capfd):
    long_sequences.main([16])
    tokens, *sizes = capfd.readouterr().out.splitlines()[-1].replace("MB", "").split()
    assert tokens == "17" and len(sizes) == len(WAYS) and all(0 <= int(size) < 100 for size in sizes)
