"""A disk that is full, read-only or gone, told apart from our own mistakes."""

from __future__ import annotations

import errno
import os
import re

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
_RUST = re.compile(r"\(os error (\d+)\)")
_NUMPY = re.compile(r"\d+ requested and \d+ written")


def disk_trouble(error: BaseException) -> str | None:
    """What the system said when a write failed, in whatever way a library wraps it; None for other errors.

    >>> disk_trouble(OSError(28, "No space left on device", "runs/a/manifest.json"))
    'runs/a/manifest.json: No space left on device'
    >>> disk_trouble(RuntimeError("I/O error: No space left on device (os error 28)"))
    'No space left on device'
    >>> disk_trouble(ValueError("something else"))
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _RUST.search(str(error))):
        number = int(found[1])
    if number is None and isinstance(error, OSError) and _NUMPY.search(str(error)):
        number = errno.ENOSPC  # NumPy counts what it wrote and forgets why it stopped
    if number is None or number not in _DISK:
        return None
    place = getattr(error, "filename", None)
    return f"{place}: {os.strerror(number)}" if place else os.strerror(number)
