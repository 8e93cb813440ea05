"""Addresses such as s3://bucket/folder: which texts are addresses, and addresses without the credentials in them."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator

from endtask.io.home import in_home

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://\S+")
_USER, _QUERY = re.compile(r"(?<=://)[^/@]*@"), re.compile(r"\?[^/?]*=.*$")
_SECRET = re.compile(r"sig(nature)?$|token$|password|secret|credential|^key$|api-?_?key", re.IGNORECASE)
"""Names of query parameters with which links are signed."""


def is_address(path: str) -> bool:
    """Return whether a path is the address of a file system that fsspec may know.

    >>> is_address("s3://bucket/*.jsonl"), is_address("notes/a.txt"), is_address("C:/notes")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(path) is not None


def redacted(address: str) -> str:
    """Return an address without user, password and query, for messages.

    >>> redacted("s3://KEY:SECRET@bucket/a.jsonl"), redacted("https://host/a.csv?sig=SECRET"), redacted("s3://bucket/a?.csv")
    ('s3://***@bucket/a.jsonl', 'https://host/a.csv?***', 's3://bucket/a?.csv')
    """
    if not is_address(address):
        return address
    return _QUERY.sub("?***", _USER.sub("***@", address))


def has_credentials(address: str) -> bool:
    """Return whether an address holds a user, a password or the signature of a link.

    >>> has_credentials("https://me@host/a"), has_credentials("https://host/a?X-Amz-Signature=1"), has_credentials("s3://a/?.csv")
    (True, True, False)
    """
    if not is_address(address):
        return False
    parts = urlsplit(address)
    return "@" in parts.netloc or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query))


def check_no_credentials(path: str) -> str:
    """Return the path; raise `ValueError` for an address with credentials, which a run folder would store."""
    if has_credentials(path):
        raise ValueError(
            f"{redacted(path)} holds credentials, which the run's folder would store; the environment or the "
            "configuration of the file system holds them (such as AWS_ACCESS_KEY_ID, ~/.aws/credentials)"
        )
    return path


def check_address(text: str) -> str:
    """Return an address without credentials; raise `ValueError` for any other text."""
    if not is_address(text):
        raise ValueError("no address such as s3://bucket/runs/mine (a folder: file:///shared/runs/mine)")
    return check_no_credentials(text)


Address = Annotated[str, AfterValidator(check_address)]
"""An address in the settings."""
DataPath = Annotated[str, AfterValidator(check_no_credentials), AfterValidator(in_home)]
"""A path or address in the settings."""
