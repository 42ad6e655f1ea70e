"""Where and with what a run was made: what replay and the reader need to know."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("fedvitals", "torch", "numpy", "scikit-learn", "safetensors", "flwr", "nvflare", "pfl")
_versions: dict[str, str] = {}


def environment() -> dict[str, Any]:
    """Host, process, versions and threads. Versions are read once a process: it takes milliseconds."""
    if not _versions:
        _versions.update({name: version for name in PACKAGES if (version := _version(name))})
    return {
        "host": platform.node(),
        "pid": os.getpid(),
        "process_started": _process_started(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "cpus_usable": _cpus_usable(),
        "memory_bytes": memory_bytes(),
        "versions": dict(_versions),
        "threads": _torch_threads(),
        "argv": [argument[:200] for argument in sys.argv[:20]],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _process_started() -> float:
    import psutil

    return float(psutil.Process().create_time())


def _cpus_usable() -> int | None:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def memory_bytes() -> int:
    """What the machine has, or the container's limit where that is less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return min(total, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return total


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())
