"""Prices of machines, disk and network: an example that comes with the package, or the user's file."""

from __future__ import annotations

from datetime import date
from importlib import resources
from pathlib import Path

from pydantic import Field, ValidationError

from endtask.config.loading import read_tree
from endtask.config.section import PositiveNumber, Section
from endtask.errors import InputError, did_you_mean
from endtask.io.parsing import parse_yaml
from endtask.planning.simulator import PassCost

_HOUR, _MONTH = 3600.0, 730 * 3600.0
_GIGABYTE = 1e9


class Prices(Section):
    """Prices on a day. `bytes_per_second` is what one machine reads from the shared folder."""

    date: date
    source: str = Field(min_length=1)
    currency: str = Field(min_length=1)
    core_hour: float = Field(ge=0)
    gpu_hour: float = Field(ge=0)
    disk_gb_month: float = Field(ge=0)
    network_gb: float = Field(ge=0)
    bytes_per_second: PositiveNumber

    def cost(self, cost: PassCost, cores: int, gpus: int = 0) -> float:
        """Return the price of a pass on machines of so many cores and GPUs, without its disk."""
        hours = cost.seconds / _HOUR * cost.machines
        machines = hours * (gpus * self.gpu_hour or cores * self.core_hour)
        return machines + cost.transferred / _GIGABYTE * self.network_gb

    def disk(self, disk_bytes: float, seconds: float) -> float:
        """Return the price of disk that is held so long.

        >>> example_prices().disk(100e9, 730 * 3600)
        8.0
        """
        return disk_bytes / _GIGABYTE * self.disk_gb_month * seconds / _MONTH


def read_prices(path: Path) -> Prices:
    """Return the prices of a YAML or JSON file; raise `InputError` that names the first wrong key."""
    try:
        return Prices.model_validate(read_tree(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(key, list(Prices.model_fields))
            raise InputError("unknown price", path=path, key=key, hint=hint) from None
        reason = "is required" if first["type"] == "missing" else first["msg"].lower()
        raise InputError(reason, path=path, key=key) from None


def example_prices() -> Prices:
    """Return the example that comes with the package."""
    text = (resources.files("endtask.planning") / "prices.yaml").read_text(encoding="utf-8")
    return Prices.model_validate(parse_yaml(text))
