"""The rows of a folder of pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oasis.items.builder import ItemBuilder, is_unicode
from oasis.items.item import Refused, Row

MAX_CAPTION_BYTES = 1 << 20
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
# among words: UUIDs, numbers of cameras and data sets, long or padded numbers, hexadecimal ids
_IDENTIFIER = re.compile(
    r"(?<!\S)(?:[\da-f]{8}(?: [\da-f]{4}){3} [\da-f]{12}|(?:img|dsc[nf]?|mvi|pxl|vid)(?: \d+)+"
    r"|[a-z]{1,4}\d{4,}|\d{5,}|0\d+|(?=[a-f]*\d)[\da-f]{8,})(?!\S)",
    re.ASCII | re.IGNORECASE,
)

IMAGE_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".avif"),
    }
)


def folder_rows(
    builder: ItemBuilder, labels_from_folders: bool, text_from_names: bool
) -> Iterator[Row]:
    """Yield the pictures below the builder's folder, with captions and, if wanted, labels."""
    for path, refusal in _walk(builder.folder):
        name = path.relative_to(builder.folder).as_posix()
        where = name.encode("utf-8", "backslashreplace").decode()
        try:
            if refusal:
                raise Refused(refusal)
            if not is_unicode(name):
                raise Refused("the name is not UTF-8")
            values: dict[str, Any] = {"id": name, "image": name}
            values["text"] = _caption(builder, Path(name).with_suffix(".txt"))
            if text_from_names and not values["text"]:
                values["text"] = name_words(Path(name).stem)
            if labels_from_folders:
                values["labels"] = list(Path(name).parts[:-1])
            yield where, values
        except Refused as error:
            yield where, str(error)


def name_words(stem: str) -> str:
    """Return the words of a file's name, separated by spaces, without numbers that only identify.

    >>> name_words("audio-headphones_v2"), name_words("redDoubleDecker"), name_words("日本")
    ('audio headphones v2', 'red Double Decker', '日本')
    >>> name_words("n02099601_golden_retriever"), name_words("IMG_2031"), name_words("Rome 2019")
    ('golden retriever', '', 'Rome 2019')
    """
    words = _IDENTIFIER.sub(" ", re.sub(r"[\W_]+", " ", stem).strip())
    return " ".join(_CAMEL.sub(" ", words).split())


def _walk(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the pictures below a folder in order of name; unreadable paths with the reason."""
    waiting = [folder]  # a stack, its top the next in order
    while waiting:
        path = waiting.pop()
        if path.name.startswith(".") and path != folder:
            continue
        try:
            if not path.is_dir():
                if path.suffix.lower() in IMAGE_SUFFIXES:
                    yield path, None
            elif path.is_symlink():
                yield path, "a link to a folder is not followed"
            else:
                waiting += sorted(path.iterdir(), reverse=True)
        except OSError as error:
            yield path, f"it cannot be looked into: {error.strerror}"


def _caption(builder: ItemBuilder, name: Path) -> str | None:
    path = builder.regular_file(str(name))
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CAPTION_BYTES + 1)
        if len(content) > MAX_CAPTION_BYTES:
            raise Refused(f"the caption {name.name!r} is longer than {MAX_CAPTION_BYTES} bytes")
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Refused(f"the caption {name.name!r} is not UTF-8") from error
    except OSError as error:
        raise Refused(f"the caption {name.name!r} cannot be read: {error.strerror}") from error
