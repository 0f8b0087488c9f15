"""The pieces of HTML of a report's page, which loads nothing. A parameter that ends in `_html` is HTML; every other
text is escaped here."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from lib.base.command import printable
from lib.base.tables import are_right

FILES = Path(__file__).resolve().parent  # the template, its style and its script


def text(value):
    """Any text as HTML: escaped, with control characters made visible."""
    return html.escape(printable(value))


def pre(value):
    """A preformatted text, whose line ends and tabs stay. The newline in front is dropped by browsers, so that one of
    the text's own is not."""
    shown = re.sub(r"[^\n\t]+", lambda part: text(part[0]), value)
    return f'<pre tabindex="0">\n{shown}</pre>'


def swatch(group):
    """An SVG of a group's line as in the pictures."""
    return (f'<svg class="key" viewBox="0 0 24 10"><line x1="0" x2="24" y1="5" y2="5" stroke-width="3" '
            f'stroke="{group.color}" stroke-dasharray="{css_dash(group.dash)}"/></svg>')


def css_dash(dash):
    """A line's dashes as SVG writes them."""
    return "none" if dash == "-" else " ".join(f"{2.2 * length:.3g}" for length in dash[1])


def table(rows, headings_html=()):
    """A table of rows of texts, of which the first has the titles. The first cell of each other row is its heading;
    `headings_html`: what to show there instead."""
    styles, (titles, *body), lines = [' class="number"' * is_right for is_right in are_right(rows)], rows, []
    head = "".join(f'<th scope="col"{style}>{text(title)}</th>' for title, style in zip(titles, styles))
    for row, heading in zip(body, headings_html or [text(row[0]) for row in body]):
        cells = "".join(f"<td{style}>{cell(content)}</td>" for content, style in [*zip(row, styles)][1:])
        lines.append(f'<tr><th scope="row">{heading}</th>{cells}</tr>')
    body_html = "\n".join(lines)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body_html}\n</tbody>\n</table></div>'


def cell(content):
    """The text of a cell, "2.550 ± 0.050", with the error in a style of its own."""
    mean, *error = text(content).split(" ± ")
    return mean + "".join(f' <span class="spread">± {part}</span>' for part in error)


def bullets(items):
    """A list of texts; nothing if there are none."""
    listed = [f"<li>{text(item)}</li>" for item in items]
    return "\n".join(["<ul>", *listed, "</ul>"]) if listed else ""


def notes(items):
    """Notes, a line each."""
    return "\n".join(f'<p class="note">{text(item)}</p>' for item in items)


def slim(svg):
    """The bytes of an SVG as text, without what a browser does not need: metadata, line ends, and digits of a place
    behind a hundredth of a point. Attributes have single quotes, which need no more characters in an address."""
    quotes = str.maketrans("\"'", "'\"")
    content = re.sub(r"<metadata>.*?</metadata>", "", svg.decode("utf-8"), flags=re.DOTALL)
    content = re.sub("<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0].translate(quotes)), content)
    return re.sub(r"\s*\n\s*", " ", content)


def picture(svg, alternative, caption):
    """A still picture, the bytes of an SVG; on a narrow screen it scrolls sideways and keeps its size. Its address has
    the SVG as text, which is a quarter shorter than base64."""
    content = slim(svg).replace("%", "%25").replace("#", "%23").replace('"', "%22").replace("&", "&amp;")
    source = "data:image/svg+xml;charset=utf-8," + content
    image = f'<img src="{source}" alt="{text(alternative)}">'
    return f'<figure><figcaption>{text(caption)}</figcaption>\n<div class="wide picture">{image}</div></figure>'


def folded(summary_html, content_html):
    """A piece of the page that unfolds by a click."""
    return f"<details><summary>{summary_html}</summary>\n{content_html}\n</details>"


def section(title, introduction, *pieces_html):
    """A section of the page; empty pieces are left out."""
    content = "\n".join(piece for piece in pieces_html if piece)
    return f"<section>\n<h2>{text(title)}</h2>\n<p>{text(introduction)}</p>\n{content}\n</section>"


def policy_hash(content):
    """A script or style as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def page(title, subtitle, sections_html, data, refresh=None):
    """The whole page. Its Content-Security-Policy allows nothing from outside, and no script and style but its own,
    whatever the texts of a run are. `data`: what page.js draws, as JSON; `refresh`: the seconds after which a browser
    reads the page again."""
    files = ("page.html", "page.css", "page.js")
    template, style, script = ((FILES / name).read_text(encoding="utf-8") for name in files)
    values = {"title": text(title), "subtitle": text(subtitle), "sections": "\n".join(sections_html), "style": style,
              "script": script, "stylehash": policy_hash(style), "scripthash": policy_hash(script),
              "refresh": f'<meta http-equiv="refresh" content="{refresh}">' if refresh else "",
              # so that no "<" in a run's text ends the element; dumps escapes all but ASCII
              "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")}
    return re.sub(r"\{\{([a-z]+)\}\}", lambda name: values[name[1]], template)
