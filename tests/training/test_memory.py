import subprocess
import sys

import pytest

MEASURE = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from contextlib import nullcontext
from tinyvit.training.memory import freed_memory_kept
scope = freed_memory_kept if sys.argv[1] == "kept" else nullcontext
def half(_):  # caches of a forward, all alive until its backward; some larger than glibc's largest threshold
    [np.ones(size, "uint8") for size in [1 << 20] * 50 + [50 << 20]]
def step():
    with scope():
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
def test_memory_of_the_previous_steps_arrays_is_reused():
    faults = {
        how: int(subprocess.run([sys.executable, "-c", MEASURE, how], capture_output=True, check=True).stdout)
        for how in ("kept", "as it is")
    }
    assert faults["kept"] < 0.1 * faults["as it is"]


AFTERWARDS = """
import numpy as np
from tinyvit import ViT, ViTConfig
from tinyvit.optim import AdamW
from tinyvit.training import train_step

def resident():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))

model = ViT(ViTConfig(8, 4, 1, 3, 16, 2, 2))
optimizer = AdamW(model)
images, labels = np.ones((4, 1, 8, 8), "float32"), np.zeros(4, "int64")
train_step(model, optimizer, images, labels, threads=2)
before = resident()
for size in 50_000_000, 4_000_000:
    arrays = [np.ones(size, "uint8") for _ in range(500_000_000 // size)]
    assert resident() - before > 450_000_000
    del arrays
    assert resident() - before < 50_000_000, (size, before, resident())
    train_step(model, optimizer, images, labels, threads=2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_memory_of_a_users_large_arrays_is_returned_to_the_system_after_a_step():
    done = subprocess.run([sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
