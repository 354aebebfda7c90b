import subprocess
import sys

import pytest

MEASURE = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from tinyvit.training.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def half(_):  # caches of a forward, all alive until its backward; some larger than glibc's largest threshold
    [np.ones(size, "uint8") for size in [1 << 20] * 50 + [50 << 20]]
def step():
    list(threads.map(half, range(2)))
threads = ThreadPoolExecutor(2)
step()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is a setting of glibc")
def test_arrays_of_the_step_before_are_used_again():
    faults = {
        how: int(subprocess.run([sys.executable, "-c", MEASURE, how], capture_output=True, check=True).stdout)
        for how in ("kept", "as it is")
    }
    assert faults["kept"] < 0.1 * faults["as it is"]
