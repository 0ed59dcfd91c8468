"""One file with everything in it: text, data, style, script and plotly. It opens offline.

Two things keep text from data harmless: it is escaped wherever it is put, and the page's security
policy runs no script but the two whose hashes it names, and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from model import __version__
from tuner.report.markup import Html, join, tag
from tuner.report.section import Section

HERE = Path(__file__).parent


def page(title: str, subtitle: str, groups: Sequence[tuple[str, Sequence[Section]]]) -> str:
    """`groups` are (heading, sections): one without a heading for a single run."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped,unused-ignore]

    style = (HERE / "page.css").read_text(encoding="utf-8")
    scripts = [get_plotlyjs(), (HERE / "page.js").read_text(encoding="utf-8")]
    scripts = [script.replace("</script", "<\\/script") for script in scripts]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    made = time.strftime("%Y-%m-%d %H:%M")
    body = tag(
        "body",
        tag("a", "to the content", href="#content", class_="skip"),
        tag("header", tag("h1", title), tag("p", subtitle, class_="subtitle"), _contents(groups)),
        tag("main", *(_group(*group) for group in groups), id="content"),
        tag("footer", tag("p", f"Made by stockpot {__version__} on {made}.")),
        tag("noscript", tag("p", "The pictures need JavaScript; the tables do not.")),
        *(Html(f"<script>{script}</script>") for script in scripts),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _policy(scripts: Sequence[str]) -> str:
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    # plotly's styles are inline.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _contents(groups: Sequence[tuple[str, Sequence[Section]]]) -> Html:
    lists = [
        join(
            [
                tag("li", tag("b", heading)) if heading else None,
                *(
                    tag("li", tag("a", section.title, href=f"#{section.id}"))
                    for section in sections
                ),
            ]
        )
        for heading, sections in groups
    ]
    return tag("nav", *(tag("ul", each) for each in lists), aria_label="contents")


def _group(heading: str, sections: Sequence[Section]) -> Html:
    parts = [tag("h2", heading, class_="run")] if heading else []
    parts += [
        tag("section", tag("h2", section.title), section.body, id=section.id)
        for section in sections
    ]
    return join(parts)
