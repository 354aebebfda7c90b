import subprocess
import sys
import tracemalloc
from functools import cache

import pytest

from tinyvit import ViTConfig, kernels
from tinyvit.bench import long_sequences
from tinyvit.bench.long_sequences import WAYS, prepared, table
from tinyvit.nn import attention


@cache
def peak(tokens, way):
    """Peak memory in bytes of a step of a tiny ViT with this many patches."""
    tiled_from, recompute, level = WAYS[way]
    config = ViTConfig((tokens // 32, 32), 1, in_chans=1, embed_dim=8, depth=6, num_heads=2)
    with kernels.using(level), pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "TILED_FROM", tiled_from)
        step = prepared(config, 1, recompute)
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


def test_the_table_has_one_row_per_size_with_its_growth():
    lines = list(table([32, 64], 2, measure=lambda side, way, batch_size: (side * side * 1e6, batch_size * 1e6)))
    assert lines[-2].split() == ["65", *["1,024", "MB", "(2", "MB)"] * 4]
    assert lines[-1].split() == ["257", *["4,096", "MB", "(2", "MB)", "×4.0"] * 4]
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_step_is_measured_in_a_new_process():
    found, activations = long_sequences.in_a_new_process(32, "in tiles, recomputed", 1)
    assert 0 < activations < 1e7 and activations < found < 1e8


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--batch-size 0", "the batch size must be at least 1, got 0"),
        ("--batch-size many", "--batch-size: invalid int value: 'many'"),
        ("--sides 30", "image size 30×30 is not a multiple of the patch size 4×4"),
        ("--side 30 --colour", "--colour"),
    ],
)
def test_bad_input_ends_with_one_line_that_names_it(arguments, message):
    command = [sys.executable, "-m", "tinyvit.bench.long_sequences", *arguments.split()]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2 and message in ended.stderr and ended.stderr.count("\n") == 1
