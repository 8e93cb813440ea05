"""Settings of a cluster of machines."""

from __future__ import annotations

from pydantic import Field

from endtask.config.section import Section


class ClusterSettings(Section):
    """The Ray cluster that retrieves, selects and packs; it changes no result."""

    address: str | None = Field(
        None,
        description="auto: the cluster that this machine belongs to, or an address such as 10.0.0.1:6379; null: this "
        "machine alone, without Ray",
    )
    scratch: str | None = Field(
        None, description="a folder that all machines share, for files between the passes; unset: in the run's folder"
    )
