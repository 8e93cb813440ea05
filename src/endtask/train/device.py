"""Where a phase is computed and in which way: device, threads, precision, compiled or not."""

from __future__ import annotations

import torch

from endtask.errors import InputError
from endtask.models.attention import Backend, choose_backend
from endtask.models.compiling import allow_shapes
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.settings import Settings


def choose_place(settings: Settings) -> Place:
    """The device and precision asked for, or the best ones present; also sets the number of CPU threads."""
    device = choose_device(settings)
    if settings.precision == "bfloat16" or (settings.precision == "auto" and _has_bfloat16(device)):
        return Place(device, torch.bfloat16)
    return Place(device)


def choose_device(settings: Settings) -> torch.device:
    """The device asked for, or the best one present; also sets the number of CPU threads."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if settings.device == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if present[name]))
    if not present[settings.device]:
        raise InputError(f"this machine has no {settings.device} device", key="device", hint="use device=auto")
    return torch.device(settings.device)


def move(network: Network, settings: Settings, place: Place) -> Network:
    """Put the network on the device and set how it computes there."""
    compiled = _is_compiled(settings, place)
    network.to(place.device)
    network.dtype = place.dtype
    network.backend = _backend(network, settings.model.attention, place, compiled)
    if compiled:
        allow_shapes()
        network.compile_parts()
    network.fixed_shapes = compiled or settings.compile == "graphs"
    return network


def check_place(settings: Settings) -> None:
    """Refuse a device or a way of attention that this machine does not have."""
    place = choose_place(settings)
    if settings.compile == "graphs" and place.device.type != "cuda":
        raise InputError(
            f"graphs are for NVIDIA GPUs, and this runs on {place.device.type}", key="compile", hint="use compile=auto"
        )
    if settings.model.attention != "auto" and settings.model.architecture == "lean":
        compiled = _is_compiled(settings, place)
        choose_backend(settings.model.attention, place.device, place.dtype, fixed_shapes=compiled)


def _is_compiled(settings: Settings, place: Place) -> bool:
    return place.device.type == "cuda" if settings.compile == "auto" else settings.compile is True


def _backend(network: Network, asked: str, place: Place, compiled: bool) -> Backend:
    """How attention is computed; Hugging Face's own classes know padded tables only."""
    if not network.architecture.padded:
        return choose_backend(asked, place.device, place.dtype, fixed_shapes=compiled)
    if asked not in ("auto", "padded"):
        raise InputError(
            f"{network.architecture.name} reads padded tables, not {asked}",
            key="model.attention",
            hint="use auto, or model.architecture=lean",
        )
    return "padded"


def _has_bfloat16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
