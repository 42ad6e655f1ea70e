"""The page itself: one file with all it needs in it, that asks nobody for anything.

Its Content-Security-Policy forbids every request, and names the scripts by their hashes: a script that came in with a
client's name would not run even if it got past the escaping.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fedvitals.show.figures.look import template
from fedvitals.show.report import sections
from fedvitals.show.report.contents import Contents, contents_of
from fedvitals.show.report.markup import text
from fedvitals.show.whole_file import whole_file
from fedvitals.store.protocol import RunReader

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OPTION = "-o"


def write_report(reader: RunReader, path: Path) -> int:
    """The run's page in this file; gives its size in bytes. FedvitalsError when it cannot be written."""
    with whole_file(path, OPTION) as file:  # before the work: a bad path is told at once
        file.write(page(contents_of(reader)))
    return path.stat().st_size


def page(found: Contents) -> str:
    """The whole page."""
    pictures = _Pictures(found.figures)
    place = pictures.place
    body = "".join(
        (
            sections.header(found),
            "<main>",
            sections.doctor(found),
            sections.time(found, place),
            sections.what_if(found),
            sections.who(found),
            sections.learning(found, place),
            sections.traffic(found, place),
            sections.memory(found, place),
            "</main>",
            _footer(),
        )
    )
    scripts = pictures.scripts()
    name = text(found.overview.run.name, 80)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{name}: fedvitals report</title><style>{_asset('page.css')}</style></head>"
        f"<body>{body}{pictures.data()}{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )


class _Pictures:
    """Figures on the page: places for them, and what is needed to draw them."""

    def __init__(self, figures: dict[str, Figure]) -> None:
        self._figures = figures
        self._placed: list[tuple[str, str]] = []

    def place(self, name: str) -> str:
        """Where a figure goes; as high as it will be, so that nothing jumps when it is drawn."""
        figure = self._figures.get(name)
        if figure is None:
            return ""
        key = f"figure-{len(self._placed)}"
        document = json.loads(figure.to_json())
        document["layout"].pop("template", None)
        self._placed.append((key, _inert(document)))
        seen = text(_words(document["layout"]["title"]["text"]))
        height = int(document["layout"]["height"])
        return (
            f'<figure><div class="plot" id="{key}" role="img" aria-label="{seen}" style="height:{height}px">'
            f"<noscript>{seen}: drawn with JavaScript, which is off.</noscript></div></figure>"
        )

    def data(self) -> str:
        looks = _inert({"light": template(), "dark": template(dark=True)}) if self._placed else ""
        entries = [*self._placed, ("looks", looks)] if self._placed else []
        return "".join(
            f'<script type="application/json" id="{key}-data">{document}</script>' for key, document in entries
        )

    def scripts(self) -> list[str]:
        """plotly.js, once, and what draws with it; nothing where there is nothing to draw."""
        if not self._placed:
            return []
        from plotly.offline import get_plotlyjs

        return [get_plotlyjs().replace("</script", "<\\/script"), _asset("page.js")]


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action 'none'"
    )


def _inert(document: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _words(title: str) -> str:
    """A figure's title without the tags of ours that plotly reads; what `plain` had escaped is as it was."""
    from html import unescape

    return unescape(title.replace("<br><sup>", ": ").replace("</sup>", ""))


def _asset(name: str) -> str:
    return (files("fedvitals.show.report") / name).read_text(encoding="utf-8")


def _footer() -> str:
    import fedvitals

    return (
        f"<footer><p>Made by fedvitals {text(fedvitals.__version__)}. This page is one file and asks the network for "
        f"nothing. It names clients, layers and error messages as the run recorded them.</p></footer>"
    )
