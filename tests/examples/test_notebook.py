"""The notebook example: its code is complete and calls what the package has; it is run by hand before a release."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import endtask

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_model.ipynb"


def test_the_code_compiles_and_names_what_exists() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in code)
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in code))
    calls = {ast.unparse(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    fit = inspect.signature(endtask.fit).parameters
    assert {keyword.arg for keyword in calls["endtask.fit"].keywords} <= {*fit, "preset"}
    methods = set(re.findall(r"\bmodel\.(\w+)", ast.unparse(tree)))
    assert {"evaluate", "predict", "explain"} <= methods
    assert all(hasattr(endtask.Model, method) for method in methods)
