"""What the routes share: the served folder, its runs, loaded models and page templates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from endtask.reporting import format as shown
from endtask.reporting.render import static_text
from endtask.web.jobs import Jobs
from endtask.web.models import LoadedModels
from endtask.web.run_index import RunIndex
from endtask.web.security import Access
from endtask.web.uploads import Uploads

_FILTERS = (
    "duration", "count", "size", "flops", "share", "score", "metric_name", "moment", "plural", "metric_with_spread",
)  # fmt: skip
TABS = (("Live", "live"), ("Selection", "selection"), ("Errors", "errors"), ("Try", "try"), ("Report", "report"))
"""The pages of a run: name and end of the address."""
_STATIC = Path(__file__).parent / "static"


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("endtask.web"),
        autoescape=True,  # texts, labels and names of files come from the user
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(shown, name) for name in _FILTERS})
    return environment


@dataclass
class Site:
    """A served folder."""

    root: Path
    access: Access = field(default_factory=Access)
    models: LoadedModels = field(default_factory=LoadedModels)
    jobs: Jobs = field(default_factory=Jobs)
    templates: jinja2.Environment = field(default_factory=_templates)

    def __post_init__(self) -> None:
        self.runs = RunIndex(self.root)
        self.uploads = Uploads(self.root)

    def page(self, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page made from a template."""
        common = {
            "csrf": self.access.csrf,
            "root": self.root,
            "needs_token": self.access.token is not None,
            "tabs": TABS,
        }
        return HTMLResponse(self.templates.get_template(template).render(**common, **context), status)


async def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


SiteHere = Annotated[Site, Depends(_site)]


async def _folder(run: str, site: SiteHere) -> Path:
    return site.runs.folder(run)


RunHere = Annotated[Path, Depends(_folder)]
"""The folder of the run whose id is in the address."""


def style_sheet() -> str:
    """Return the style sheet of the pages: that of reports, with what pages add to it."""
    own = (_STATIC / "pages.css").read_text(encoding="utf-8")
    return static_text("chart.css") + static_text("endtask.css") + own


def static_file(name: str) -> Path | None:
    """Return a file of the pages by its name; None if there is none."""
    return next((file for file in _STATIC.iterdir() if file.name == name), None)
