"""Settings of a cluster of machines."""

from __future__ import annotations

from pydantic import Field

from endtask.config.section import Section
from endtask.io.addresses import Address


class ClusterSettings(Section):
    """The Ray cluster that retrieves, selects and packs, and the address of finished stages; no result changes."""

    address: str | None = Field(
        None,
        description="auto: the cluster that this machine belongs to, or an address such as 10.0.0.1:6379; null: this "
        "machine alone, without Ray",
    )
    scratch: str | None = Field(
        None, description="a folder that all machines share, for files between the passes; unset: in the run's folder"
    )
    storage: Address | None = Field(
        None,
        description="an address of this run's own, such as s3://bucket/runs/mine: finished stages are uploaded there, "
        "and the same command on another machine goes on after them",
    )
