"""Settings of one source of text."""

from __future__ import annotations

from pydantic import Field

from endtask.config.section import Section


class SourceSettings(Section):
    """One named part of the corpus."""

    path: str = Field(description="a file, a folder, a glob, `hf:NAME` or `docstrings`")
    name: str | None = Field(None, description="shown in reports; by default made from the file name")
    text: str | None = Field(None, description="column of the text; found by its usual names if unset")
    license: str | None = Field(None, description="noted beside every text of this source")
