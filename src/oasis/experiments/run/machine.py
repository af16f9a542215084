"""Machine and versions that a run was computed with, which are recorded with its results."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import oasis

_PACKAGES = ("numpy", "scipy", "scikit-learn", "wordllama")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit the threads of linear algebra; read when it is loaded."""


def machine() -> dict[str, str | int]:
    """Return the processor, the number of cores, the system and the threads allowed.

    >>> sorted(machine())
    ['cores', 'processor', 'system', 'threads']
    """
    cores = os.cpu_count() or 1
    limits = [os.environ[name] for name in THREAD_VARIABLES if name in os.environ]
    return {
        "processor": _processor(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": int(limits[0]) if limits and limits[0].isdigit() else cores,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, oasis and its numerical libraries."""
    found = {"python": platform.python_version(), "oasis": oasis.__version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
