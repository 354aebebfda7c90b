import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tinyvit

COMPILE = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np
from tinyvit.kernels.fast.linear import add_rows
total = np.zeros(3)
add_rows(np.ones((5, 3), "float32"), total)
print(*total, sum(add_rows.__globals__["kernel"].stats.cache_hits.values()))
"""


def new_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.full
def test_a_second_process_compiles_nothing(tmp_path):
    outputs = [new_process(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)).stdout.split() for _ in range(2)]
    assert outputs == [["5.0", "5.0", "5.0", "0"], ["5.0", "5.0", "5.0", "1"]]


def test_a_change_of_any_source_leads_to_another_folder(tmp_path, monkeypatch):
    from tinyvit.kernels.fast import compiled

    package = Path(tinyvit.__file__).parent
    for source in [*package.glob("kernels/**/*.py"), *package.glob("functional/*.py")]:
        copy = tmp_path / "tinyvit" / source.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "tinyvit/kernels/fast/compiled.py"))
    monkeypatch.setattr(compiled.numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    before = compiled.cache_folder.__wrapped__()
    assert before == compiled.cache_folder.__wrapped__() and before.is_dir()
    with open(tmp_path / "tinyvit/kernels/fast/exp.py", "a") as file:
        file.write("# another version\n")
    assert compiled.cache_folder.__wrapped__() != before


@pytest.mark.full
def test_an_unwritable_cache_folder_is_reported_and_costs_only_time(tmp_path):
    (tmp_path / "file").write_text("")
    done = new_process(COMPILE.replace('"error"', '"always"'), NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert done.stdout.split()[:3] == ["5.0"] * 3
    assert done.stderr.count("compiled kernels can't be kept in") == 1 and "set NUMBA_CACHE_DIR" in done.stderr


def test_arrays_of_another_dtype_are_refused():
    from tinyvit.kernels.fast.linear import add_rows

    with pytest.raises(TypeError, match="No matching definition"):
        add_rows(np.ones((5, 3)), np.zeros(3))


def test_other_threads_go_on_while_a_kernel_runs():
    from tinyvit.kernels.fast.linear import add_rows

    rows, steps = np.ones((1 << 15, 256), "float32"), 0
    add_rows(rows, np.zeros(256))
    runs = threading.Thread(target=lambda: [add_rows(rows, np.zeros(256)) for _ in range(20)])
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)  # seconds: a thread keeps the interpreter's lock until it gives it back itself
    try:
        runs.start()
        while runs.is_alive():
            time.sleep(0)
            steps += 1
    finally:
        sys.setswitchinterval(switch)
        runs.join()
    assert steps > 2 * 20


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf, 0.0, -0.0, 88.7, 88.8, -87.5, -103.9, -104.1, -200.0])
def test_exp_is_numpys_at_the_limits_of_its_range(x):
    from tinyvit import functional as F

    with np.errstate(all="ignore"):
        # Softmax of (x, 0) with x below 0 is exp(x) / (1 + exp(x)).
        probs, _ = F.softmax(np.float32([x, 0.0]))
        expected, _ = F.softmax.reference(np.float32([x, 0.0]))
    np.testing.assert_allclose(probs, expected, rtol=3e-7, atol=1.5e-45)
