"""A user without a name gets one, which libraries ask for; a named user keeps it."""

from __future__ import annotations

import getpass
import os
import pwd

import pytest

from endtask.io.home import name_user


def test_a_user_who_has_only_a_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "LNAME", "USERNAME", "USER"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    name_user()
    assert getpass.getuser() == f"user-{os.getuid()}"
    monkeypatch.setenv("LOGNAME", "ada")
    name_user()
    assert getpass.getuser() == "ada"
