"""The page around a report: its style, and the pieces of HTML that it is put together from. Nothing is fetched."""

import base64
import html

from runs import printable

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #666; --line: #ddd; --page: #f6f6f4; --card: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --soft: #a0a0a0; --line: #3a3a3a; --page: #17181a; --card: #202225; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 1120px; background: var(--page); color: var(--ink);
       font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
p, li { max-width: 75ch; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; }
header p { max-width: none; }
ul { margin: .6rem 0; padding-left: 1.3rem; }
.soft, figcaption { color: var(--soft); }
.note { border-left: 3px solid #d55e00; padding-left: .7rem; font-size: .92rem; }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
.picture { background: #fff; }
.picture img { display: block; width: 100%; min-width: 680px; height: auto; }
figure { margin: 0; }
figcaption { margin: 0 0 .6rem; max-width: 75ch; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .45rem .65rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 600; min-width: 12rem; max-width: 24rem; overflow-wrap: break-word; }
td { max-width: 26rem; overflow-wrap: break-word; }
td.number, th.number { text-align: right; white-space: nowrap; }
.folder { min-width: 14rem; overflow-wrap: anywhere; }
@media (max-width: 600px) { tbody th { min-width: 7rem; } }
.spread { display: block; color: var(--soft); font-size: .82rem; }
code, pre { font: .86rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: .7rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 26rem;
      overflow-y: auto; background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
details { margin: .5rem 0; }
td details { margin: 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.dot { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .45em; }
"""


def text(value):
    """Any text as HTML: control characters made visible, and nothing in it is markup."""
    return html.escape(printable(value))


def lines(value):
    """A text of several lines, for a <pre>: line ends and tabs stay, other control characters are made visible."""
    return "\n".join("\t".join(text(part) for part in line.split("\t")) for line in value.split("\n"))


def pre(value):
    """A preformatted text. The newline in front is dropped by browsers, so that one of the text's own is not."""
    return f'<pre tabindex="0">\n{lines(value)}</pre>'


def dot(color):
    """A run's colour in the pictures."""
    return f'<span class="dot" style="background: {html.escape(color)}"></span>'


def table(header, rows, numbers=()):
    """A table. Cells are HTML; the first of a row is its heading; `numbers`: columns that stand to the right."""
    def cell(tag, column, content, scope=""):
        place = ' class="number"' if column in numbers else ""
        return f"<{tag}{scope}{place}>{content}</{tag}>"

    head = "".join(cell("th", i, content, ' scope="col"') for i, content in enumerate(header))
    body = "\n".join("<tr>" + cell("th", 0, row[0], ' scope="row"')
                     + "".join(cell("td", i, content) for i, content in enumerate(row[1:], start=1)) + "</tr>"
                     for row in rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def bullets(items):
    """A list of texts; nothing if there are none."""
    listed = [f"<li>{text(item)}</li>" for item in items]
    return "\n".join(["<ul>", *listed, "</ul>"]) if listed else ""


def notes(items):
    """What had to be left out, a line each."""
    return "\n".join(f'<p class="note">{text(item)}</p>' for item in items)


def picture(png, alternative, caption):
    """A PNG within the page; on a narrow screen it scrolls sideways rather than shrink beyond reading."""
    width, height = (int.from_bytes(png[at:at + 4], "big") for at in (16, 20))
    data = base64.b64encode(png).decode("ascii")
    return (f'<figure><figcaption>{text(caption)}</figcaption>\n<div class="wide picture"><img width="{width}" '
            f'height="{height}" alt="{text(alternative)}" src="data:image/png;base64,{data}"></div></figure>')


def folded(title, content):
    """A part that opens when asked."""
    return f"<details><summary>{title}</summary>\n{content}\n</details>"


def section(title, *parts):
    """A section of the page; empty parts are left out."""
    content = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{text(title)}</h2>\n{content}\n</section>"


def page(title, subtitle, sections):
    """The whole page. Its policy forbids scripts and anything from outside, whatever a run's texts hold."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{text(title)}</h1>
<p class="soft">{text(subtitle)}</p>
</header>
<main>
{chr(10).join(sections)}
</main>
</body>
</html>
"""
