"""What endtask finds on this machine: versions, devices, caches, missing extras, and known problems."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from endtask.io.machine import available_memory, describe_machine
from endtask.io.stage_folder import versions
from endtask.reporting import format as shown

_LEAST_DISK = 5e9
_LEAST_MEMORY = 2e9
_DISTRIBUTION = "endtask"


@dataclass(frozen=True)
class Problem:
    """Something that will stop or slow a run, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Extra:
    """An optional part of the installation; `missing` are its requirements that are not met."""

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    versions: dict[str, str]
    machine: dict[str, Any]
    devices: tuple[str, ...]
    memory: int
    caches: dict[str, int] = field(default_factory=dict)
    """Folders of caches, and the bytes in each."""
    extras: tuple[Extra, ...] = ()
    problems: tuple[Problem, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield what was found as lines of text."""
        yield ", ".join(f"{name} {version}" for name, version in self.versions.items())
        machine = self.machine
        yield f"{machine['processor']}, {machine['cores']} cores, {shown.size(self.memory)} of memory available"
        yield f"devices: {', '.join(self.devices)}"
        for folder, size in self.caches.items():
            yield f"cache: {folder} ({shown.size(size)})"
        for extra in self.extras:
            missing = f"needs {', '.join(extra.missing)}: pip install 'endtask[{extra.name}]'"
            yield f"extra {extra.name}: {missing if extra.missing else 'installed'}"
        for problem in self.problems:
            yield f"problem: {problem.what} ({problem.remedy})"
        if not self.problems:
            yield "no known problems"


def diagnose(folder: Path = Path()) -> Diagnosis:
    """Look at this machine; `folder` is where runs are written."""
    machine, memory = describe_machine(), available_memory()
    devices = tuple(_devices())
    problems = [
        *_unmet_requirements(),
        *_device_problems(machine["gpus"], devices),
        *_space_problems(folder, memory),
        *_setting_problems(),
    ]
    return Diagnosis(versions(), machine, devices, memory, _caches(), tuple(extras()), tuple(problems))


def _devices() -> Iterator[str]:
    import torch

    from endtask.encoders.device_context import has_amx

    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            bfloat16 = "" if torch.cuda.is_bf16_supported(including_emulation=False) else ", without bfloat16"
            yield f"cuda:{number} {properties.name} ({shown.size(properties.total_memory)}{bfloat16})"
    if torch.backends.mps.is_available():
        yield "mps"
    yield f"cpu ({torch.get_num_threads()} threads{', AMX' if has_amx() else ''})"


def extras(requires: list[str] | None = None, version_of: Callable[[str], str] = metadata.version) -> list[Extra]:
    """Return the extras of the installed package and what each lacks.

    >>> extras(["numpy>=1", "no-such>=2; extra == 'onnx'"], lambda name: {}[name])
    [Extra(name='onnx', missing=('no-such>=2',))]
    """
    found: dict[str, list[str]] = {}
    for requirement in _requirements(requires):
        name = _extra_of(requirement)
        if name is not None:
            missing = found.setdefault(name, [])
            if _unmet(requirement, version_of) is not None:
                missing.append(f"{requirement.name}{requirement.specifier}")
    return [Extra(name, tuple(missing)) for name, missing in sorted(found.items())]


def _requirements(requires: list[str] | None = None) -> list[Any]:
    """Return what the installed package requires; nothing for a source tree that is not installed."""
    from packaging.requirements import Requirement

    if requires is None:
        try:
            requires = metadata.requires(_DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            requires = []
    return [Requirement(text) for text in requires]


def _extra_of(requirement: Any) -> str | None:
    """Return the extra that a requirement belongs to; those of endtask's own extras are left to these."""
    if requirement.marker is None or requirement.name == _DISTRIBUTION:
        return None
    words = str(requirement.marker).replace("'", '"').split('extra == "')
    return words[1].split('"')[0] if len(words) == 2 else None


def _unmet(requirement: Any, version_of: Callable[[str], str]) -> str | None:
    """Return what is installed of a requirement that is not met; None where it is met."""
    try:
        version = version_of(requirement.name)
    except (metadata.PackageNotFoundError, KeyError):
        return "not installed"
    return None if requirement.specifier.contains(version, prereleases=True) else version


def _unmet_requirements() -> Iterator[Problem]:
    """Yield a problem for each library that has another version than endtask is written for."""
    for requirement in _requirements():
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = _unmet(requirement, metadata.version)
        if found is not None:
            wanted = f"{requirement.name}{requirement.specifier}"
            yield Problem(f"{requirement.name} is {found}, not {requirement.specifier}", f"pip install '{wanted}'")


def _device_problems(gpus: list[str], devices: tuple[str, ...]) -> Iterator[Problem]:
    import torch

    if gpus and not any(device.startswith("cuda") for device in devices):
        built = f"this torch ({torch.__version__}) is built {'for CUDA' if torch.version.cuda else 'without CUDA'}"
        yield Problem(f"{gpus[0]} is not used: {built}", "install the torch that fits the driver, from pytorch.org")
    if any("without bfloat16" in device for device in devices):
        yield Problem("the GPU has no bfloat16", "runs use float32 there, several times slower than on newer GPUs")


def _space_problems(folder: Path, memory: int) -> Iterator[Problem]:
    free = shutil.disk_usage(folder).free
    if free < _LEAST_DISK:
        yield Problem(f"{shown.size(free)} are free on the disk of {folder.resolve()}", "choose another --output")
    if memory < _LEAST_MEMORY:
        yield Problem(f"{shown.size(memory)} of memory are available", "close other programs, or lower retrieve.top_k")
    for cache in _caches():
        if not os.access(cache, os.W_OK):
            yield Problem(f"the cache {cache} cannot be written", "compiled code is made again at every start")


def _setting_problems() -> Iterator[Problem]:
    """Yield a problem for each variable of the environment that makes runs slow or different."""
    if os.environ.get("OMP_NUM_THREADS") == "1" and (os.cpu_count() or 1) > 1:
        yield Problem("OMP_NUM_THREADS is 1: training uses one core", "unset it, or set `threads`")
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        yield Problem("CUDA_LAUNCH_BLOCKING is 1: every step waits for the GPU", "unset it")
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        yield Problem("NUMBA_DISABLE_JIT is 1: retrieval is hundreds of times slower", "unset it")
    if not sys.flags.utf8_mode and sys.getfilesystemencoding().lower() != "utf-8":
        yield Problem(f"file names are in {sys.getfilesystemencoding()}", "set PYTHONUTF8=1")


def _caches() -> dict[str, int]:
    """Return the folders that exist of downloads and compiled code, with their sizes."""
    from huggingface_hub.constants import HF_HOME

    from endtask.retrieval.compiled import cache_folder

    folders = (Path(HF_HOME), cache_folder())
    return {str(folder): _size(folder) for folder in folders if folder is not None and folder.is_dir()}


def _size(folder: Path) -> int:
    """Return the bytes of the files below a folder; links count nothing."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                total += path.stat().st_size if path.exists() else 0
    return total
