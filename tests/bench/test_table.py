import re

from small_bench import TRAIN

from tinyvit.bench.table import case_table, duration, heading, size

MACHINE = dict(
    processor="A Processor With Many Words In Its Name @ 3.40 GHz", cores=2, load=0.25, memory_bytes=25_300_000_000,
    python="3.11.7", numpy="2.4.6", blas="openblas 0.3.31 (SkylakeX)", numba="0.68.1", torch="2.13.0+cpu",
    timm="1.0.31",
)  # fmt: skip
SETTINGS = dict(threads=2, rounds=10, left_out={})


def row(name, title, median=0.6123, problem=None, **fields):
    return dict(
        name=name, title=title, median=median, quartiles=None if median is None else [0.601, 0.65], per_second=209.05,
        of_floor=0.72, ratios={"torch": 1.234}, peak_bytes=1_204_000_000, bytes_before=104_000_000, problem=problem,
    ) | fields  # fmt: skip


def result(*rows, floor=0.44, problems=None, disagreement=None):
    return dict(
        case="vit", title=TRAIN.title, multiply_adds=70e9, results=list(rows), disagreement=disagreement,
        floor=dict(seconds=floor, operations_per_second=318e9, problems=problems or {}),
    )  # fmt: skip


OURS, TORCH = row("fast", "tinyvit, fast"), row("torch", "PyTorch eager", ratios={"fast": 0.81})


def test_a_line_has_time_spread_speed_ratio_share_of_the_floor_and_memory():
    lines = case_table(result(OURS, TORCH)).splitlines()
    cells = re.split(r" {2,}", lines[3].strip())
    assert cells == ["tinyvit, fast", "612 ms", "601 ms–650 ms", "209", "1.23", "72 %", "1,204 MB", "1,100 MB"]
    assert re.split(r" {2,}", lines[4].strip())[4] == "1.00"
    assert re.split(r" {2,}", lines[5].strip()) == ["the floor", "440 ms", "at 318 Gflop/s"]
    assert "140.0 Gflop" in lines[0]


def test_without_torch_there_is_no_ratio():
    assert "PyTorch" not in case_table(result(row("fast", "tinyvit, fast", ratios={})))


def test_a_failed_contestant_has_a_line_with_the_reason_and_no_numbers():
    text = case_table(result(OURS, row("torch", "PyTorch eager", None, "out of memory; take less")))
    assert text.splitlines()[-1] == "  PyTorch eager: out of memory; take less"
    assert text.count("PyTorch eager") == 1 and "PyTorch/this" not in text
    assert "  products: gone" in case_table(result(OURS, floor=None, problems={"products": "gone"}))
    assert case_table(result(OURS, disagreement="not the same")).endswith("\n  not the same")
    assert "no reason" in case_table(result(row("fast", "tinyvit, fast", None, "no reason"), floor=None))


def test_the_table_fits_a_terminal_of_120_columns():
    wide = dict(median=12345.678, quartiles=[12345.678, 23456.789], per_second=123456.0, peak_bytes=9_999_000_000)
    rows = [OURS, TORCH, row("reference", "tinyvit, reference", **wide), row("compile", "torch.compile")]
    text = heading(MACHINE, SETTINGS) + "\n" + case_table(result(*rows))
    assert max(map(len, text.splitlines())) <= 120
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_the_heading_names_processor_threads_and_versions_as_far_as_they_are_known():
    text = heading(MACHINE, SETTINGS | {"left_out": {"torch": "PyTorch is not installed"}})
    for fact in ("Many Words", "2 cores", "load 0.2", "25.3 GB", "float32", "2 threads", "10 rounds", "3.11.7", "2.4.6",
                 "openblas", "0.68.1", "2.13.0+cpu", "PyTorch is not installed"):  # fmt: skip
        assert fact in text
    text = heading(dict.fromkeys(MACHINE, None) | {"cores": 1, "python": "3", "numpy": "2"}, SETTINGS)
    assert "None" not in text and "numba" not in text


def test_durations_keep_three_digits_and_memory_is_in_megabytes_or_gigabytes():
    assert list(map(duration, (0.00123, 0.0456, 1.234, 98.7))) == ["1.23 ms", "45.6 ms", "1.23 s", "98.7 s"]
    text = case_table(result(row("fast", "f", 1.0, quartiles=[0.98, 1.23]), row("numpy", "n", quartiles=[0.01, 0.02])))
    assert "980 ms–1.23 s" in text and "10.0 ms–20.0 ms" in text
    assert [size(count) for count in (None, 0, 1.5e6, 9e9, 2.53e10)] == ["–", "0 MB", "2 MB", "9,000 MB", "25.3 GB"]
