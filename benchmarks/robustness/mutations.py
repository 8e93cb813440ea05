"""Inputs drawn from seeds: valid files whose bytes are mutated, and settings and rows with values that hypothesis draws."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

_TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n\n",
        b"\x1b[31m",
        "\u202e".encode(),
        b"\xed\xa0\x80",
        b"\x1a",
    ),
    *(
        b"null",
        b"NaN",
        b"1e999",
        b"-1",
        b"0",
        b"9" * 400,
        b'""',
        b"{}",
        b"[]",
        b"[" * 200,
        b"{" * 200,
        b'"',
        b"'",
        b",",
        b":",
    ),
    *(
        b"!!bool maybe",
        b"&a [*a]",
        b"? [1]",
        b"\t",
        b"%s%n",
        b"../../../etc/passwd",
        b"=1+1",
        b"<script>",
        b"\\ud800",
        b"x" * 3000,
    ),
)
_STEPS = 8


def mutated(content: bytes, random: Random) -> bytes:
    """Return a file's content after one to eight mutations of its bytes."""
    changed = bytearray(content)
    for _ in range(random.randint(1, _STEPS)):
        place = random.randrange(len(changed) + 1)
        kind = random.randrange(7)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[place : place + random.choice((1, 4, 64, 1024))] = b""
        elif kind == 2:
            changed[place:place] = random.choice(_TOKENS)
        elif kind == 3:
            token = random.choice(_TOKENS)
            changed[place : place + len(token)] = token
        elif kind == 4:
            changed[place:place] = changed[: random.choice((1, 16, 256))]
        elif kind == 5:
            changed = changed[:place]
        else:
            changed[place : place + 16] = random.randbytes(16)
    return bytes(changed)


_TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "auto", "nan", "inf", "-1", "1e9", "10min", "50%", "0steps", "~x", "a\0b"]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=6
)


def drawn_values(number: int, count: int) -> list[Any]:
    """Return values of all types that JSON has, which hypothesis draws for a seed."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_VALUES)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


def with_value(tree: Any, value: Any, random: Random) -> tuple[Any, str]:
    """Return a copy of a tree in which the value at a random place, or a new key there, is another one; and the place."""
    copy = json.loads(json.dumps(tree))
    place, names = copy, []
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = random.choice(keys) if keys and random.random() < 0.95 else "strange" if isinstance(place, dict) else None
        names.append(str(key))
        if key is None:
            place.append(value)
            return copy, ".".join(names)
        inner = place.get(key) if isinstance(place, dict) else place[key]
        if isinstance(inner, dict | list) and random.random() < 0.8:
            place = inner
        else:
            place[key] = value
            return copy, ".".join(names)
