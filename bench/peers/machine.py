"""What the figures were measured on."""

import datetime
import os
import pathlib
import platform
import subprocess
from importlib import metadata


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "unknown"


def value_of(path, key, separator):
    """The value in the first line of the file that begins with key, "" if there is none."""
    try:
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(key):
                return line.split(separator, 1)[1].strip()
    except OSError:
        pass
    return ""


def version_of(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def describe(build):
    """build: the CMake build folder that the C++ peers come from."""
    cache = build / "CMakeCache.txt"
    compiler = value_of(cache, "CMAKE_CXX_COMPILER:", "=") or "c++"
    memory_kb = int(value_of("/proc/meminfo", "MemTotal", ":").split()[0])
    versions = {name: version_of(name) for name in ("torch", "lightning", "accelerate", "deepspeed")}
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": value_of("/proc/cpuinfo", "model name", ":") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory_kb / 2**20),
        "system": f"{platform.system()} {platform.release()}",
        "compiler": first_line([compiler, "--version"]),
        "build_type": value_of(cache, "CMAKE_BUILD_TYPE:", "=") or "Release",  # CMakeLists.txt's
        "python": platform.python_version(),
        **versions,
        "load_before": round(os.getloadavg()[0], 2),
    }
