"""Contact sheets: the pictures of hits on one page, as a PNG file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from oasis import store
from oasis.errors import DataError, MissingExtraError, StorageError
from oasis.features.pictures import on_white

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    _Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont

_CELL = 160
_GAP = 16
_LINE = 18
_COLUMNS = 5
_TITLE = 36


class Picture(NamedTuple):
    """A picture for a contact sheet: the bytes of a file, if there is one, and lines below it."""

    content: bytes | None
    lines: tuple[str, ...]


def contact_sheet(sections: Sequence[tuple[str, Sequence[Picture]]], path: Path) -> None:
    """Draw pictures in rows of five below the title of their section, and write a PNG.

    A file at ``path`` is replaced, atomically. An item without a picture is an empty frame.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="images", what="a contact sheet") from error
    title_font, font = ImageFont.load_default(18), ImageFont.load_default(13)
    widest = max((len(pictures) for _, pictures in sections), default=1)
    n_lines = max((len(each.lines) for _, pictures in sections for each in pictures), default=0)
    step = _CELL + n_lines * _LINE + _GAP
    width = max(3, min(_COLUMNS, widest)) * (_CELL + _GAP) + _GAP
    n_rows = sum(-(-len(pictures) // _COLUMNS) for _, pictures in sections)
    sheet = Image.new("RGB", (width, _GAP + len(sections) * _TITLE + n_rows * step), "#f6f6f4")
    draw = ImageDraw.Draw(sheet)
    top = _GAP
    for title, pictures in sections:
        draw.text((_GAP, top), _fitted(title, title_font, width - 2 * _GAP), "#1a1a1a", title_font)
        top += _TITLE
        for number, picture in enumerate(pictures):
            row, column = divmod(number, _COLUMNS)
            corner = (_GAP + column * (_CELL + _GAP), top + row * step)
            _draw_picture(sheet, draw, font, picture, corner)
        top += -(-len(pictures) // _COLUMNS) * step
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    try:
        with store.replacing(path) as temporary:
            temporary.write_bytes(out.getvalue())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def _draw_picture(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    font: _Font,
    picture: Picture,
    corner: tuple[int, int],
) -> None:
    left, top = corner
    frame = (left - 1, top - 1, left + _CELL, top + _CELL)
    draw.rounded_rectangle(frame, 6, "#ffffff", "#d8d8d4")
    content = _decoded(picture.content)
    if content is not None:
        content.thumbnail((_CELL - 8, _CELL - 8))
        inner = (left + (_CELL - content.width) // 2, top + (_CELL - content.height) // 2)
        sheet.paste(content, inner)
    for place, line in enumerate(picture.lines):
        below = (left, top + _CELL + 5 + place * _LINE)
        draw.text(below, _fitted(line, font, _CELL), "#555555" if place else "#000000", font)


def _decoded(content: bytes | None) -> Image.Image | None:
    from PIL import Image, UnidentifiedImageError

    if content is None:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG", "WEBP", "GIF")) as opened:
            return on_white(opened.convert("RGBA"))
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"a stored thumbnail cannot be read: {error}") from error


def _fitted(text: str, font: _Font, width: int) -> str:
    """Return a line of text, cut so that it is at most so many pixels wide."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
