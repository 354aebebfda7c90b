"""How much memory this process can still allocate within the limits of system, container and process."""

from pathlib import Path

from tinyvit.backend import free_memory
from tinyvit.data.folder import physical_memory
from tinyvit.training.memory import freed_memory

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}  # `ulimit -v` and `-d`, and their counters
UNLIMITED = 1 << 60  # bytes: version 1 of the control groups states a larger number where there is no limit


def available_memory(device="cpu"):
    """Bytes that can still be allocated, or None where the system doesn't say. On a GPU, its free memory.

    On Linux the least of: free memory (with file caches and swap), what the control groups (a container's) leave, and
    what `ulimit` leaves. Memory that this process freed and kept is added to each. On macOS it is the machine's memory,
    used or not; on Windows unknown.
    """
    if device != "cpu":
        return free_memory(device)
    information = numbers(PROC / "meminfo")
    if "MemAvailable" not in information:
        return physical_memory()
    swap = information.get("SwapFree", 0)
    system = [information["MemAvailable"], *limits_of_groups()]
    return max(0, min([min(system) + swap, *limits_of_process()]) + freed_memory())


def limits_of_groups():
    """Bytes left below the limit of each control group of this process, of versions 2 and 1."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names, root = ("memory.max", "memory.current", ""), CGROUPS
        elif "memory" in controllers.split(","):
            names, root = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"), CGROUPS / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:  # the group's own limit, and that of every group around it
            if folder.is_relative_to(root):
                yield from limit_of_group(folder, *names)


def limit_of_group(folder, limit, usage, prefix):
    """Bytes left below one group's limit; nothing if it has none. File pages count as free."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in (limit, usage))
    except OSError:
        return
    if limit.isdigit() and used.isdigit() and int(limit) < UNLIMITED:
        pages = numbers(folder / "memory.stat", unit=1)
        yield int(limit) - int(used) + sum(pages.get(f"{prefix}{kind}_file", 0) for kind in ("inactive", "active"))


def limits_of_process():
    """Bytes left below each limit of this process."""
    try:
        import resource
    except ImportError:  # Windows
        return
    status = numbers(PROC / "self/status")
    for name, counted in LIMITS.items():
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY and counted in status:
            yield limit - status[counted]


def numbers(path, unit=1024):
    """The lines "name: 5 kB" of a file, as bytes by name; none if it can't be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    fields = (line.replace(":", " ").split() for line in lines)
    return {name: unit * int(value) for name, value, *_ in (f for f in fields if len(f) > 1) if value.isdigit()}
