"""How much memory this process can still have, by what the system, its container and its own limits say."""

from pathlib import Path

from tinyvit.backend import free_memory
from tinyvit.data.folder import physical_memory
from tinyvit.training.memory import freed_memory

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}  # `ulimit -v` and `-d`, and what counts towards them
UNLIMITED = 1 << 60  # bytes: what version 1 of the control groups says where there is no limit is more than that


def available_memory(device="cpu"):
    """Bytes that can still be had, or None where the system doesn't say. On a GPU, what is free of its own memory.

    On Linux the least of the free memory (what caches hold of files included, and swap), of what the limits of the
    control groups (a container's) leave, and of what `ulimit` leaves. To each comes what this process has freed and
    kept. On macOS it is all memory that there is, whoever has it; on Windows unknown.
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
    """What the limit of each control group that this process is in leaves, of version 2 and of version 1."""
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
    """What one group's limit leaves; nothing if it has none. The files' pages can be given back."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in (limit, usage))
    except OSError:
        return
    if limit.isdigit() and used.isdigit() and int(limit) < UNLIMITED:
        pages = numbers(folder / "memory.stat", unit=1)
        yield int(limit) - int(used) + sum(pages.get(f"{prefix}{kind}_file", 0) for kind in ("inactive", "active"))


def limits_of_process():
    """What each limit of this process leaves."""
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
