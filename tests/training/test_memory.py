import os
import subprocess
import sys

import pytest

from tinyvit.training import memory
from tinyvit.training.memory import available_memory

pytestmark = pytest.mark.end_to_end

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


# -- how much there is -----------------------------------------------------------------------------------------------

MEMINFO = "MemTotal: 8000 kB\nMemAvailable:    5000 kB\nSwapFree: 0 kB\nHugePages_Total:       0\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Replaces /proc and /sys/fs/cgroup by given files; no other limits apply."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")

    def put(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    put(proc__meminfo=MEMINFO, proc__self__cgroup="")
    return put


def group(folder, limit, used, inactive=0, active=0):
    """The files of a version 2 cgroup."""
    return {
        f"groups{folder}__memory_DOT_max": f"{limit}\n",
        f"groups{folder}__memory_DOT_current": f"{used}\n",
        f"groups{folder}__memory_DOT_stat": f"anon 5\ninactive_file {inactive}\nactive_file {active}\n",
    }


def test_available_memory_is_what_the_system_has_left_including_swap(system):
    assert available_memory() == 5000 * 1024
    system(proc__meminfo=MEMINFO.replace("SwapFree: 0", "SwapFree: 300"))
    assert available_memory() == 5300 * 1024


def test_a_cgroups_limit_leaves_its_unused_memory_and_its_file_cache(system):
    system(proc__self__cgroup="0::/box\n", **group("__box", 4000, 3000, inactive=200, active=100))
    assert available_memory() == 1300


@pytest.mark.parametrize("path", ["/outer/box", "/outer", "/", "/not/mounted/here"])
def test_the_limits_of_parent_cgroups_count_too(system, path):
    system(proc__self__cgroup=f"0::{path}\n", **group("", 9000, 1000), **group("__outer", 4000, 3000))
    system(**group("__outer__box", "max", 50))
    assert available_memory() == (1000 if path.startswith("/outer") else 8000)


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), "what?"])
def test_a_cgroup_without_a_limit_changes_nothing(system, limit):
    system(proc__self__cgroup="0::/\n", **group("", limit, 3000))
    assert available_memory() == 5000 * 1024


def test_without_proc_available_memory_is_all_memory_or_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PHYS_PAGES": 50, "SC_PAGE_SIZE": 100}[name])
    assert available_memory() == 5000
    monkeypatch.delattr(os, "sysconf")
    assert available_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_limit_of_the_process_leaves_what_it_has_not_used():
    code = """
import resource, numpy
from tinyvit.training.memory import available_memory
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))
first = available_memory()
kept = numpy.ones(300_000_000, "uint8")
print(first, first - available_memory())
"""
    first, taken = map(int, subprocess.check_output([sys.executable, "-c", code]).split())
    assert 0 < first < 2_000_000_000
    assert 299_000_000 < taken < 320_000_000
