"""The Dockerfile copies files that exist and installs extras that exist; there is no Docker in the tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def test_the_dockerfile_fits_the_repository(repository: Path) -> None:
    text = (repository / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sent = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M) for name in line.split()]
    assert copied
    for name in copied:
        assert (repository / name).exists()
        assert f"!{name.removeprefix('./')}" in sent, "else the build does not see it"
    needed = {project["readme"], *project["license-files"], "src", "pyproject.toml"}
    assert needed <= {name.removeprefix("./") for name in copied}
    extras = re.search(r"^ARG EXTRAS=(.+)$", text, re.M)
    python = re.search(r"^ARG PYTHON=3\.(\d+)$", text, re.M)
    assert extras is not None
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
    assert python is not None
    assert int(python[1]) >= int(project["requires-python"].rpartition(".")[2])
    assert re.search(r'^ENTRYPOINT \["(.+)"\]$', text, re.M)[1] in project["scripts"]  # type: ignore[index]
