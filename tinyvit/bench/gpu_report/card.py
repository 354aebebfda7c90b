"""Name, memory, driver and versions of the GPU: a time means nothing without them."""

import platform
import shutil
import subprocess

import numpy as np

import tinyvit
from tinyvit.backend import library
from tinyvit.bench.machine import installed, processor


def describe(device):
    """Card, driver and versions, as a dict for JSON; None for what is missing."""
    facts = {
        "processor": processor(),
        "python": platform.python_version(),
        "tinyvit": tinyvit.__version__,
        "numpy": np.__version__,
        "torch": installed("torch"),
        "card": None,
    }
    if device == "cpu":
        return facts
    cupy = library(device)
    with cupy.cuda.Device(number_of(device)) as card:
        free, total = cupy.cuda.runtime.memGetInfo()
        properties = cupy.cuda.runtime.getDeviceProperties(number_of(device))
    return facts | {
        "card": properties["name"].decode(),
        "compute_capability": f"{card.compute_capability[:-1]}.{card.compute_capability[-1]}",
        "multiprocessors": properties["multiProcessorCount"],
        "memory_bytes": total,
        "free_bytes": free,
        "driver": driver(),
        "cuda_driver": cupy.cuda.runtime.driverGetVersion(),
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


def number_of(device):
    """0 of "cuda", 1 of "cuda:1"."""
    return int(device.partition(":")[2] or 0)


def driver():
    """The driver's version as nvidia-smi says it, or None."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True)
    return answer.stdout.strip().splitlines()[0] if answer.returncode == 0 and answer.stdout.strip() else None


def synchronize(device):
    """Wait until the device has finished all queued work."""
    if device != "cpu":
        library(device).cuda.get_current_stream().synchronize()
