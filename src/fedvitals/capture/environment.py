"""Where and with what a run was made: what replay and the reader need to know."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
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


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())
