"""Render pages from templates: the report of a run and those of experiments share style sheet, script and frame.

Texts, labels and file names come from users, so everything is escaped, and a page may run no script but ours.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from endtask.reporting import format as shown

STATIC = Path(__file__).with_name("static")
"""The folder of style sheets and scripts."""
_FILTERS = (
    "duration", "count", "size", "flops", "energy", "share", "score", "metric_name", "moment", "plural",
    "score_with_spread", "metric_with_spread", "shorten",
)  # fmt: skip


def render(template: str, **context: Any) -> str:
    """Return a page from a template of the folder `templates`."""
    return environment().get_template(template).render(**context)


def static_text(name: str) -> str:
    """Return a file of the folder `static`."""
    return (STATIC / name).read_text(encoding="utf-8")


@cache  # pages of experiments are written again after every trial
def environment() -> jinja2.Environment:
    """Return the environment of all templates, which escapes every value."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("endtask.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({name: getattr(shown, name) for name in _FILTERS})
    script = static_text("page.js")
    made.globals.update(
        style_sheet=Markup(static_text("chart.css") + static_text("endtask.css")),
        page_script=Markup(script),
        content_security_policy=content_security_policy(script),
    )
    return made


def content_security_policy(script: str) -> str:
    """Return a policy that loads nothing, sends nothing and runs this script only."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; form-action 'none'"
