"""The user: paths that begin with `~`, the home of this user or of another one; and a name for users without one."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

_OPTION = re.compile(r"(--[a-z-]+=)(~.*)", re.DOTALL)


def in_home(path: str) -> str:
    """Return a path with the home of its user in place of `~`; raises `ValueError` for a user that is not known.

    >>> in_home("notes/~a")
    'notes/~a'
    >>> in_home("~no-such-user/a")
    Traceback (most recent call last):
    ValueError: ~no-such-user: no user of this machine has that name
    """
    if not path.startswith("~"):
        return path
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError(f"{path.partition('/')[0]}: no user of this machine has that name")
    return expanded


def name_user() -> None:
    """Name a user who has only a number, as in containers: PyTorch asks for a name where it caches."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user-{os.getuid()}"


def with_homes(arguments: Iterable[str]) -> list[str]:
    """Return arguments in which `--output=~/x` is what shells make of `--output ~/x`; other texts stay as they are.

    >>> with_homes(["--output=~no-such-user/x", "~ is a tilde"])
    ['--output=~no-such-user/x', '~ is a tilde']
    """
    found = ((argument, _OPTION.fullmatch(argument)) for argument in arguments)
    return [f"{option[1]}{os.path.expanduser(option[2])}" if option else argument for argument, option in found]


LocalPath = Annotated[str, AfterValidator(in_home)]
"""A path in the settings that may begin with `~`."""
