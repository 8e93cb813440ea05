"""The description of a machine in manifests."""

from __future__ import annotations

import json
from pathlib import Path

from endtask.io.machine import _processor, describe_machine, usable_cores


def test_this_machine() -> None:
    found = describe_machine()
    assert found["cores"] == usable_cores() >= 1
    assert found["processor"]
    assert json.loads(json.dumps(found)) == found


def test_the_name_of_a_processor(tmp_path: Path) -> None:
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: Some Core @ 3 GHz\nmodel name\t: Some Core @ 3 GHz\n")
    assert _processor(listed) == "Some Core @ 3 GHz"
    listed.write_text("processor\t: 0\nCPU part\t: 0xd0c\n")
    assert _processor(listed) == _processor(tmp_path / "absent") != ""
