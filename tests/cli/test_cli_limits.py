import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
@pytest.mark.parametrize("limit", [250_000, 300_000, 400_000, 600_000])
def test_too_little_address_space_for_the_libraries_is_one_line(limit, tmp_path):
    usual = "unset OPENBLAS_NUM_THREADS OMP_NUM_THREADS"  # so that each thread of BLAS has a buffer
    train = f"exec {sys.executable} -m tinyvit train digits --epochs 1 --out {tmp_path}/run"
    command = f"{usual}; ulimit -v {limit}; {train}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("tinyvit: error: too little memory: the libraries") and line.endswith("(ulimit -v)")
    assert not (tmp_path / "run").exists()
