"""The demo as one self-contained HTML page, in light and dark."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from html import escape
from string import Template

from oasis.collection import Hit
from oasis.demo.chart import chart
from oasis.demo.story import CONTENT, Asked, Titles, Told, Unlabelled

GENERATOR = '<meta name="generator" content="oasis demo">'
"""Marks a page as written by the demo."""

_STYLE = """
:root{--page:#fbfbf9;--card:#fff;--ink:#1b1d22;--soft:#676b76;--rule:#e4e4df;--all:#16181d;
--new:#0d7d8c;--old:#a3428f;--chance:#9a9ca3;--good:#1d7f4e;--good-bg:#e4f4ea;--chip:#f0f0ec}
@media (prefers-color-scheme:dark){:root{--page:#131519;--card:#1b1e24;--ink:#ecedf0;
--soft:#9a9eaa;--rule:#2c3038;--all:#f4f5f7;--new:#4cc3d2;--old:#e08acd;--chance:#7b7f8a;
--good:#6fd39e;--good-bg:#173527;--chip:#262a32}.icon{filter:invert(.93)}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:56px 24px 72px}
h1{font-size:clamp(30px,5vw,46px);line-height:1.1;letter-spacing:-.02em;margin:0 0 14px}
h2{font-size:25px;letter-spacing:-.01em;margin:64px 0 6px}
h3{font-size:17px;margin:0}
p{margin:0 0 14px;max-width:70ch}
.soft,.lede{color:var(--soft)}
.lede{font-size:19px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;
margin:32px 0 0}
.fact,.card{background:var(--card);border:1px solid var(--rule);border-radius:12px}
.fact{padding:14px 18px}
.fact b{display:block;font-size:28px;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.fact span{color:var(--soft);font-size:14px}
.card{padding:20px;margin:16px 0;overflow:hidden}
.chart{display:block;width:100%;height:auto}
.scroll{overflow-x:auto}.scroll .chart{min-width:560px}
.grid{stroke:var(--rule)}.tick{fill:var(--soft);font-size:13px}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.line.all{stroke:var(--all);stroke-width:3.5}.line.new{stroke:var(--new)}
.line.old{stroke:var(--old)}.line.chance{stroke:var(--chance);stroke-dasharray:5 5}
.dot.all{fill:var(--all)}.dot.new{fill:var(--new)}.dot.old{fill:var(--old)}
.dot.chance{fill:var(--chance)}
.name{font-size:14px;font-weight:600}.name.all{fill:var(--all)}.name.new{fill:var(--new)}
.name.old{fill:var(--old)}.name.chance{fill:var(--soft)}
.round{display:grid;grid-template-columns:46px minmax(0,1fr) 262px;gap:6px 20px;
padding:18px 0;border-top:1px solid var(--rule);align-items:center}
.round:first-child{border-top:0;padding-top:2px}.round:last-child{padding-bottom:2px}
.number{font-size:26px;font-weight:650;color:var(--soft);font-variant-numeric:tabular-nums}
.chips{display:flex;flex-wrap:wrap;gap:6px;margin:0 0 10px}
.chip{background:var(--chip);border-radius:99px;padding:1px 10px;font-size:13.5px}
.strip{display:flex;flex-wrap:wrap;gap:10px}
.strip .icon{width:32px;height:32px}
.figures{display:grid;grid-template-columns:repeat(4,1fr);text-align:right;gap:2px 10px;
font-variant-numeric:tabular-nums;font-size:17px}
.figures span{font-size:12.5px;color:var(--soft)}
.figures .new{color:var(--new)}.figures .old{color:var(--old)}.figures .all{font-weight:700}
.figures .chance{color:var(--soft)}
.asks{display:flex;gap:16px;align-items:center;margin-bottom:18px}
.asks .icon{width:64px;height:64px}
.ways.two{grid-template-columns:repeat(2,minmax(0,1fr))}
.ways{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:22px}
.way{font-weight:650;font-size:14.5px;margin:0 0 10px;display:flex;justify-content:space-between}
.way span{font-weight:400;color:var(--soft)}
.hits{list-style:none;margin:0;padding:0;display:grid;gap:8px;
grid-template-columns:repeat(4,minmax(0,1fr))}
.hit{background:var(--page);border:1px solid var(--rule);border-radius:9px;padding:9px 4px 6px;
text-align:center;font-size:11.5px;line-height:1.3;min-width:0}
.hit.right{background:var(--good-bg);border-color:transparent}
.hit .icon{width:36px;height:36px;display:block;margin:0 auto 5px}
.hit b{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden;
font-weight:550;min-height:2.6em;
overflow-wrap:break-word;hyphens:auto}
.hit i{display:block;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;
font-style:normal;color:var(--soft)}
.hit em{font-style:normal;color:var(--good);font-variant-numeric:tabular-nums}
.quote{font-size:19px;font-weight:650;letter-spacing:-.01em;margin:0 0 12px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:16px 20px;
overflow-x:auto;font:14px/1.7 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media (max-width:820px){.ways{grid-template-columns:1fr}
.round{grid-template-columns:34px minmax(0,1fr);column-gap:10px}
.figures{grid-column:2;text-align:left;column-gap:6px}
.hits{grid-template-columns:repeat(4,minmax(0,1fr))}}
"""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
$generator
<title>oasis: an icon stream</title>
<style>$style</style>
</head>
<body>
<main>
<h1>Search that learns from a stream</h1>
<p class="lede">$n_stored icons arrived in $n_rounds rounds, and every round brought categories that
nobody had announced. Each icon became a code of $n_bits bits when it came. No code has changed
since, and no old icon was looked at again.</p>
<div class="facts">$facts</div>

<h2>Round by round</h2>
<p class="soft">Mean average precision of icons that were held out, searched in everything stored so
far: queries of the round&rsquo;s own icons (<b>new</b>), of all rounds before (<b>old</b>), and of
<b>all</b>. More categories make the task harder: <b>chance</b> is what a random order would
give. The ranking is that of searches, by asymmetric scores. Plain Hamming distance weighs content
bits and category bits the same, and gives $hamming in the last round.</p>
<div class="card scroll">$chart</div>
<div class="card">$rounds</div>

<h2>An icon by its own title</h2>
<p class="soft">Of all $n_titles stored icons, $first % come first when their title is searched for,
and $ten % are among the first ten; by their codes alone, without the texts that are kept,
$code_first % and $code_ten %. Their own picture finds $picture % first, by codes alone
$code_picture %. Three of them, at the quarters of the stream; green is the icon
itself.</p>
<div class="card ways">$titles</div>

<h2>The same words, by kind and by content</h2>
<p class="soft">A code has bits for the categories and bits for the content beyond them. Searches
weigh both: <code>content=0</code> uses the categories only, <code>content=1</code> the content
only. Here are 0 and $content. The words were chosen by hand.</p>
$contents

<h2>One icon, three ways to ask</h2>
<p class="soft">These icons were held out and are not picked by hand: an easy one, a typical one and
a hard one, at the quartiles of average precision (of the whole ranking: a hard one may begin well).
Green hits share a category with the icon that asks. The figure is the cosine between query and
code.</p>
$ways

<h2>A word that was never a category</h2>
<p class="soft">None of these words is a category, and nothing was ever labelled with them. A text
query combines the categories that it names, its words, and the categories that they predict. So
icons that have the word come first, and then others of the same kind. Chosen by hand.</p>
<div class="card ways">$meanings</div>

<h2>Icons without labels</h2>
<p class="soft">The three held-out icons above then arrived like all others, but without their
labels. They are stored by their content and by the labels that are predicted of them.</p>
<div class="card ways">$unlabelled</div>

<h2>Go on from here</h2>
<pre>$commands</pre>
<p class="soft">Icons: Font Awesome Free 6 (CC BY 4.0).</p>
</main>
</body>
</html>
""")


def page(
    rounds: Sequence[Told],
    titles: Titles,
    asked: Sequence[Asked],
    unlabelled: Sequence[Unlabelled],
    picture: Callable[[str | int], bytes],
    n_bits: int,
    commands: Sequence[str],
) -> str:
    """Return the page.

    Parameters
    ----------
    rounds, titles, asked, unlabelled : what happened
    picture : callable
        Gives the PNG of a stored icon by its id.
    n_bits : int
        Length of the codes.
    commands : sequence of str
        What to try next.
    """
    last = rounds[-1]
    n_classes = sum(len(each.new_classes) for each in rounds)
    facts = (
        (f"{last.n_stored:,}", "icons stored"),
        (f"{n_classes}", "categories, none announced"),
        (f"{last.n_stored * n_bits // 8 / 1000:.1f} kB", "for all the codes"),
        (f"{last.all:.2f}", f"MAP, {last.all / last.chance:.1f} times chance"),
        (
            f"{100 * titles.first:.0f} %",
            f"found first by title, {100 * titles.ten:.0f} % among ten",
        ),
        (f"{sum(each.seconds for each in rounds):.0f} s", "to learn and store them"),
    )

    def part(kind: str, draw: Callable[[Asked, Callable[[str | int], bytes]], str]) -> str:
        return "".join(draw(each, picture) for each in asked if each.kind == kind)

    return _PAGE.substitute(
        generator=GENERATOR,
        style=_STYLE,
        n_stored=f"{last.n_stored:,}",
        n_rounds=len(rounds),
        n_bits=n_bits,
        facts="".join(
            f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for value, name in facts
        ),
        chart=chart(rounds),
        rounds="".join(_round(each, picture) for each in rounds),
        content=f"{CONTENT:g}",
        hamming=f"{last.hamming:.2f}",
        n_titles=f"{titles.n:,}",
        first=f"{100 * titles.first:.0f}",
        ten=f"{100 * titles.ten:.0f}",
        code_first=f"{100 * titles.code_first:.0f}",
        code_ten=f"{100 * titles.code_ten:.0f}",
        picture=f"{100 * titles.picture:.0f}",
        code_picture=f"{100 * titles.code_picture:.0f}",
        titles=part("title", _one_way),
        contents=part("content", _two_ways),
        ways=part("held out", _three_ways),
        meanings=part("strange", _one_way),
        unlabelled="".join(_unlabelled(each, picture) for each in unlabelled),
        commands=escape("\n".join(commands), quote=False),
    )


def _round(told: Told, picture: Callable[[str | int], bytes]) -> str:
    chips = "".join(f'<span class="chip">{escape(name)}</span>' for name in told.new_classes)
    samples = "".join(_icon(picture(name), str(name)) for name in told.samples)
    figures = "".join(
        f'<div class="{name}"><span>{name}</span><br>{"-" if value is None else f"{value:.2f}"}'
        "</div>"
        for name, value in (
            ("new", told.new),
            ("old", told.old),
            ("all", told.all),
            ("chance", told.chance),
        )
    )
    return (
        f'<div class="round"><div class="number">{told.number}</div><div>'
        f'<div class="chips">{chips}</div><div class="strip">{samples}</div></div>'
        f'<div class="figures">{figures}</div></div>'
    )


def _three_ways(asked: Asked, picture: Callable[[str | int], bytes]) -> str:
    if asked.icon is None or not isinstance(asked.icon.image, bytes):
        return ""
    wanted = set(asked.icon.labels)
    ways = []
    for answer in asked.answers:
        right = sum(bool(wanted & set(hit.labels)) for hit in answer.hits)
        ways.append(
            f'<div><p class="way">{escape(answer.way)}<span>{right} of {len(answer.hits)}</span>'
            f"</p>{_hits(answer.hits, picture, wanted)}</div>"
        )
    return (
        f'<div class="card"><div class="asks">{_icon(asked.icon.image, asked.title)}<div>'
        f"<h3>{escape(asked.title)}</h3>"
        f'<span class="soft">{escape(", ".join(asked.icon.labels))} &middot; '
        f"{escape(asked.note)}</span></div></div>"
        f'<div class="ways">{"".join(ways)}</div></div>'
    )


def _one_way(asked: Asked, picture: Callable[[str | int], bytes]) -> str:
    sought = set() if asked.icon is None else {asked.icon.id}
    hits = _hits(asked.answers[0].hits, picture, (), sought)
    return f'<div><p class="quote">&ldquo;{escape(asked.title)}&rdquo;</p>{hits}</div>'


def _two_ways(asked: Asked, picture: Callable[[str | int], bytes]) -> str:
    ways = "".join(
        f'<div><p class="way">{escape(answer.way)}</p>{_hits(answer.hits, picture, ())}</div>'
        for answer in asked.answers
    )
    title = f'<p class="quote">&ldquo;{escape(asked.title)}&rdquo;</p>'
    return f'<div class="card">{title}<div class="ways two">{ways}</div></div>'


def _unlabelled(found: Unlabelled, picture: Callable[[str | int], bytes]) -> str:
    place = "is not among the first ten" if found.place is None else f"is at place {found.place}"
    lines = (
        ("predicted", ", ".join(found.predicted) or "nothing is likely enough"),
        ("its labels, not given", ", ".join(found.icon.labels)),
        ("a search with its title", f"it {place}"),
    )
    told = "".join(
        f"<p><span class='soft'>{name}</span><br>{escape(value)}</p>" for name, value in lines
    )
    title = str(found.icon.payload["title"])
    icon = _icon(picture(found.icon.id), title)
    return f'<div><div class="asks">{icon}<h3>{escape(title)}</h3></div>{told}</div>'


def _hits(
    hits: Sequence[Hit],
    picture: Callable[[str | int], bytes],
    wanted: Collection[str],
    sought: Collection[str | int] = (),
) -> str:
    drawn = []
    for hit in hits:
        title, labels = str(hit.payload["title"]), ", ".join(hit.labels)
        is_right = hit.id in sought or any(name in wanted for name in hit.labels)
        right = " right" if is_right else ""
        drawn.append(
            f'<li class="hit{right}" title="{escape(f"{title}: {labels}")}">'
            f"{_icon(picture(hit.id), title)}<b>{escape(title)}</b><i>{escape(labels)}</i>"
            f"<em>{hit.score:.2f}</em></li>"
        )
    return f'<ul class="hits">{"".join(drawn)}</ul>'


def _icon(png: bytes, name: str) -> str:
    data = b64encode(png).decode()
    return f'<img class="icon" alt="{escape(name)}" src="data:image/png;base64,{data}">'
