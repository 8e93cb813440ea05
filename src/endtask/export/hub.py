"""`--to hub`: upload the saved model, or an exported folder, to the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from endtask.errors import InputError
from endtask.export.base import RECORD, Exported, Exporter, ExportRequest, TrainedRun, exporters
from endtask.io.parsing import parse_json
from endtask.io.stage_files import MANIFEST

_LEFT_HERE = (MANIFEST, RECORD, "tasks/*", ".*")
"""Files that stay on this machine: they hold its paths, versions and times, or models of auxiliary tasks."""

_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
_LONGEST_NAME = 96


@exporters.register("hub")
class Hub(Exporter):
    """One upload, private unless `--public`; takes a run, whose model is sent, or an exported folder."""

    packages: ClassVar[tuple[str, ...]] = ("huggingface_hub",)
    extra = "hub"

    def export(self, request: ExportRequest) -> Exported:
        if request.output is not None:
            raise InputError("--output has no meaning for --to hub", hint="--repo NAME/MODEL says where to")
        name = _checked_name(request.repository)
        folder, kind = _what_to_send(request.source)
        url = upload(folder, name, kind, public=request.public)
        visibility = "public" if request.public else "private"
        facts = {"repository": name, "type": kind, "url": url, "visibility": visibility, "folder": str(folder)}
        return Exported(url, facts, (f"a {visibility} {kind}",))


def _checked_name(name: str | None) -> str:
    hint = "--repo OWNER/NAME"
    if name is None:
        raise InputError("name the repository on the hub", hint=hint)
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(f"--repo: {name!r} is not a name of a repository", hint=hint)
    return name


def _what_to_send(source: Path) -> tuple[Path, str]:
    """Return the folder to upload and the type of its repository."""
    record = source / RECORD
    if not record.exists():
        return TrainedRun(source).model, "model"
    try:
        exporter = parse_json(record.read_text(encoding="utf-8"))["exporter"]
    except (ValueError, KeyError, TypeError):
        raise InputError("not the record of an export", path=record, hint="export again") from None
    return source, exporters.get(exporter).repository_type


def upload(folder: Path, name: str, kind: str = "model", *, public: bool = False) -> str:
    """Upload a folder to a repository and return its address; a public one is not written to by accident."""
    from huggingface_hub import HfApi

    api: Any = HfApi()
    try:
        address = api.create_repo(name, repo_type=kind, private=not public, exist_ok=True)
        if not public and not api.repo_info(name, repo_type=kind).private:
            raise InputError("this repository is public", path=name, hint="--public, or private=False, uploads to it")
        api.upload_folder(
            folder_path=str(folder),
            repo_id=name,
            repo_type=kind,
            commit_message="Model trained with endtask" if kind == "model" else "Text selected with endtask",
            ignore_patterns=list(_LEFT_HERE),
        )
    except InputError:
        raise
    except Exception as error:  # network errors are those of the HTTP client that the library happens to use
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be uploaded: {reason}", path=name, hint="hf auth login") from None
    return str(address)
