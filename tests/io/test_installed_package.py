"""Models inside installed packages: found by name without importing the package, and one line for each error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io import installed_package
from endtask.io.installed_package import package_folder, package_model

KEY = "model.path"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package with some files in place, as pip would; running its code fails."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, *files: str, code: str | None = "raise AssertionError('was run')") -> Path:
        folder = tmp_path / name
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("{}")
        if code is not None:
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").write_text(code)
        return folder

    return make


def complaint(path: str) -> str:
    with pytest.raises(InputError) as raised:
        package_folder(path, key=KEY)
    assert raised.value.key == KEY
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{path}, key 'model.path': ")


@pytest.mark.parametrize("inside", ["", "model/"])
@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_the_model_lies_in_the_package_or_in_its_model_folder(install: Install, inside: str, weights: str) -> None:
    folder = install("carrier", f"{inside}config.json", f"{inside}{weights}")
    assert package_folder("package:carrier", key=KEY) == folder / inside
    assert package_model("package:carrier") == folder / inside
    assert "carrier" not in sys.modules


def test_a_model_that_endtask_ships_comes_before_a_package_of_its_name(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("our_model", "config.json", "model.safetensors")
    shipped = tmp_path / "pretrained"
    monkeypatch.setattr(installed_package, "_SHIPPED", shipped)
    assert package_folder("package:our-model", key=KEY) == tmp_path / "our_model"
    (shipped / "our_model").mkdir(parents=True)
    assert "holds no config.json" in complaint("package:our-model")
    for file in ("config.json", "model.safetensors"):
        (shipped / "our_model" / file).write_text("{}")
    assert package_folder("package:our-model", key=KEY) == shipped / "our_model"


def test_a_configuration_of_something_else_is_passed_over(install: Install) -> None:
    folder = install("carrier", "config.json", "model/config.json", "model/model.safetensors")
    assert package_folder("package:carrier", key=KEY) == folder / "model"


def test_pips_name_will_do_and_so_will_a_package_without_code(install: Install) -> None:
    folder = install("big_carrier", "config.json", "model.safetensors", code=None)
    assert package_folder("package:big-carrier", key=KEY) == folder


def test_a_package_that_is_not_there(install: Install) -> None:
    assert complaint("package:no_such_carrier_xyz") == (
        "no such package is installed (pip install no-such-carrier-xyz)"
    )
    install("small_carrier_xyz", "config.json", "model.safetensors")
    assert complaint("package:smal_carier_xyz") == ("no such package is installed (did you mean 'small_carrier_xyz'?)")
    assert package_model("package:no_such_carrier_xyz") is None


@pytest.mark.parametrize("files", [(), ("config.json",), ("model.safetensors",), ("config.json", "model/weights.bin")])
def test_a_package_without_a_model(install: Install, files: tuple[str, ...]) -> None:
    install("carrier", *files)
    assert complaint("package:carrier") == (
        "the package holds no config.json with *.safetensors, in its own folder or in model inside it"
    )
    assert package_model("package:carrier") is None


@pytest.mark.parametrize("name", ["sys", "__main__", "this"])
def test_a_module_without_a_folder_holds_no_model(name: str) -> None:
    assert complaint(f"package:{name}").startswith("the package holds no config.json")


@pytest.mark.parametrize("name", ["", "a.b", "carrier.model", "../carrier", "a b", "1a"])
def test_what_is_no_name_is_never_looked_for(install: Install, name: str) -> None:
    install("carrier", "model/config.json", "model/model.safetensors")
    assert (
        complaint(f"package:{name}") == f"key 'model.path': {name!r} is not the name of a package (write package:NAME)"
    )
    assert "carrier" not in sys.modules


@given(st.text(max_size=20))
def test_any_name_is_answered_with_a_folder_or_one_line(name: str) -> None:
    found = package_model(f"package:{name}") if name.isidentifier() else None
    if found is None:
        assert complaint(f"package:{name}")
    else:
        assert package_folder(f"package:{name}", key=KEY) == found
