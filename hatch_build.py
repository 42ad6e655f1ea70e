"""Compiles the optional kernels while fedvitals is being built or installed, where a C compiler is there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = ("src/fedvitals/capture/tensors/_kernel.so", "src/fedvitals/train/compiled/_trainer.so")


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling names no type to give
    """Without a compiler the wheel is a pure one, and works all the same."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.name != "posix":
            return
        root = Path(self.root)
        subprocess.run([str(root / "script" / "kernel")], check=False)  # noqa: S603  (our own script, no arguments)
        there = [kernel for kernel in KERNELS if (root / kernel).exists()]
        if there:
            build_data["artifacts"] += [f"/{kernel}" for kernel in there]
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
