"""The words of a text: folded, without stop words, reduced to stems.

A text is normalised (NFKD), case-folded, and loses its accents, Hebrew points and Arabic vowel
signs. A word is a run of letters, digits and the marks that belong to them; anything else separates
words. Words of one letter are removed, digits and emoji are kept.

Scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese), and Korean,
whose particles are attached to nouns, are not segmented. Instead every two neighbouring characters
are a word, and so is every single Chinese character and Korean syllable, so that a search for 猫
finds 黒い猫.
"""

# ruff: noqa: RUF001 - letters of other scripts are meant

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Function words, accents folded. A function word of one language that is an everyday English word
# with a content is not listed: hat, war, son, sin, van, door, fur, bin, pour, car, plus, par, sans,
# sob, tot, uno, os and ai are kept (the German articles die and den are listed). The lists are our
# own and not a library's, because the features of a stored collection depend on them.
_STOP_WORDS = {
    "English": """
        a an the this that these those i
        he him his himself she her hers herself it its itself me my mine myself we us our ours
        ourselves you your yours yourself yourselves they them their theirs themselves who whom
        whose which what
        am is are was were be been being have has had having do does did doing done
        can could may might must shall should will would
        and or but nor so yet if because while although though unless until whether than as
        about above across after against along among around at before behind below beneath beside
        between beyond by down during for from in inside into near of off on onto out outside over
        since through throughout to toward towards under up upon with within without
        no not only own same such too very just also again then once here there when where why how
        all any both each few more most other some every either neither
        don doesn didn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn mustn ll ve re
        """,
    "German": """
        der die das den dem des ein eine einen einem einer eines und oder aber auch als am an auf
        aus bei beim bis da damit dass durch er es hinter ich ihm ihn ihr ihre im in ist kein keine
        mit nach nicht noch nur ob ohne sehr sein seine sich sie sind so uber um unter vom von vor
        wenn wie wir wird wurde zu zum zur zwischen
        """,
    "French": """
        le la les un une des du de et ou mais donc ni au aux avec ce ces cet cette chez comme
        dans elle elles en entre est et il ils je leur leurs lui mes nos notre nous pas que
        quel quelle qui sa se ses sont sous sur ta tes tu vers vos votre vous
        """,
    "Spanish": """
        el la los las un una unos unas de del al y o u pero con en entre es esta este estos estas
        ha han lo le les mas mi mis muy ni nos para pero por que se sobre su sus tambien tu tus ya
        """,
    "Portuguese": """
        as um uma uns umas do da dos das no na nos nas ao aos com ou em entre esta este isso isto
        mais mas nao nem para pela pelas pelo pelos por que se sem seu seus sua suas sobre
        tambem
        """,
    "Italian": """
        il lo la gli le una di del della delle dei degli al alla alle agli dal dalla nel
        nella nelle nei sul sulla con ed che chi ma non per piu si sono su suo sua tra
        """,
    "Dutch": """
        de het een en of maar dat deze dit die aan als bij dan er hij hun ik is je met naar niet nog
        om onder ook op te uit voor waar was wat wel zijn ze zij
        """,
    "Russian": """
        и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне из
        мы от до о об для это этот эта эти или их под над при без
        """,
}
STOP_WORDS = frozenset(" ".join(_STOP_WORDS.values()).split())
"""Words that say nothing about a text, of English and seven other languages."""

_IRREGULAR = {
    "buses": "bus",
    "children": "child",
    "feet": "foot",
    "gases": "gas",
    "geese": "goos",
    "lens": "lens",
    "men": "man",
    "mice": "mous",
    "people": "person",
    "skis": "ski",
    "teeth": "tooth",
    "women": "woman",
}

_ASCII_WORD = re.compile(r"[a-z0-9]+")
# one letter beside an apostrophe is no word: man's, don't, l'eau, o'clock
_CLIPPED = re.compile(r"(?<=\w)['’]\w\b|\b\w['’](?=\w\w)")
# combining accents, Hebrew points, Arabic vowel signs and stretching, variation selectors
_DROPPED = re.compile("[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670\ufe00-\ufe0f]")
# letters with a stroke, which have no decomposition
_STROKES = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
_SINGLE = (
    "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul
)
_PAIRED = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30ff\u31f0-\u31ff"  # kana
    "\u0e01-\u0eff\u1000-\u109f\uaa60-\uaa7f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
_IS_SINGLE = re.compile(f"[{_SINGLE}]")
_PARTS = re.compile(f"([{_SINGLE}{_PAIRED}]+)")
_VOWELS = frozenset("aeiouy")
# one syllable that ends in consonant, vowel, consonant (Porter's *o): car, pin, plan, rid
_SHORT = re.compile("[^aeiouy]+[aeiouy][^aeiouwxy]")
_FINAL_V = re.compile("v(?=e?$)")


def words_of(text: str, *, stop_words: bool = True, letters: bool = False) -> list[str]:
    """Return the stems of the words of a text in order, repeats included.

    ``stop_words`` leaves out `STOP_WORDS`; ``letters`` keeps words of one letter, except those
    beside an apostrophe.

    >>> words_of("The dogs of Łódź, no. 7")
    ['dog', 'lodz', '7']
    >>> words_of("黒い猫")
    ['黒', '黒い', 'い猫', '猫']
    >>> words_of("A beginner's guide to C"), words_of("A beginner's guide to C", letters=True)
    (['beginner', 'guid'], ['beginner', 'guid', 'c'])
    """
    if letters:
        text = _CLIPPED.sub(" ", text)
    found = _ASCII_WORD.findall(text.lower()) if text.isascii() else _folded_words(text)
    return [
        stem(word)
        for word in found
        if (letters or not _is_letter(word)) and not (stop_words and word in STOP_WORDS)
    ]


def tokens_of(text: str) -> list[str]:
    """Return all words of a text in order, folded: with stop words and single letters, no stems.

    In scripts without spaces, and in Korean, every character is a word. So a text contains a phrase
    if it contains the words of the phrase in sequence.

    >>> tokens_of("The dogs of Łódź, a 黒い猫")
    ['the', 'dogs', 'of', 'lodz', 'a', '黒', 'い', '猫']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    found: list[str] = []
    for run in _folded(text).split():
        for place, part in enumerate(_PARTS.split(run)):
            found += part if place % 2 else [part] * bool(part)
    return found


def _is_letter(word: str) -> bool:
    """Return whether a word is a single letter of a script with spaces between words."""
    return len(word) == 1 and word.isalpha() and not _PARTS.match(word)


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Return an English word without plural, -ing, -ed and a final e; others change little.

    A light stemmer: ``dogs``, ``ponies``, ``boxes``, ``knives``, ``buildings`` and ``riding`` get
    the stems of ``dog``, ``pony``, ``box``, ``knife``, ``building`` and ``ride``. A short word
    keeps its final e, so that ``care``, ``pine`` and ``plane`` are not ``car``, ``pin`` and
    ``plan``. Words of fewer than four letters, with digits, or in another script are returned
    unchanged.

    >>> [stem(word) for word in ("dogs", "ponies", "boxes", "knives", "riding", "bus", "glass")]
    ['dog', 'pony', 'box', 'knife', 'ride', 'bus', 'glass']
    >>> [stem(word) for word in ("houses", "care", "cars", "buildings", "bicycling", "bicycle")]
    ['hous', 'care', 'car', 'build', 'bicycl', 'bicycl']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ing") and _can_lose(word[:-3]):
        word = _base(word[:-3])
    elif word.endswith("ed") and not word.endswith("eed") and _can_lose(word[:-2]):
        word = _base(word[:-2])
    if len(word) > 3 and word.endswith("ie"):
        word = f"{word[:-2]}y"
    elif len(word) > 3 and word.endswith("e") and not _SHORT.fullmatch(word, endpos=len(word) - 1):
        word = word[:-1]
    return _FINAL_V.sub("f", word)


def _can_lose(base: str) -> bool:
    return len(base) > 2 and not _VOWELS.isdisjoint(base)


def _base(base: str) -> str:
    """Return the base of a word without -ing or -ed: sitt, carri, rid become sit, carry, ride."""
    if base[-1] == base[-2] and base[-1] in "bdgmnprt":
        return base[:-1]
    if base.endswith("i") and len(base) > 3:
        return f"{base[:-1]}y"
    return f"{base}e" if _SHORT.fullmatch(base) else base


def _folded(text: str) -> str:
    """Return a text reduced to words and the spaces between them."""
    folded = unicodedata.normalize("NFKD", text).casefold().translate(_STROKES)
    composed = unicodedata.normalize("NFC", _DROPPED.sub("", folded))
    return "".join(map(_kept, composed))


def _folded_words(text: str) -> list[str]:
    found: list[str] = []
    for run in _folded(text).split():
        for place, part in enumerate(_PARTS.split(run)):
            if place % 2:
                found += _pairs(part)
            elif part:
                found.append(part)
    return found


@lru_cache(maxsize=1 << 12)
def _kept(character: str) -> str:
    """Return a character that belongs to a word, an emoji as a word of its own, or a space."""
    category = unicodedata.category(character)
    if character.isalnum() or category in ("Mn", "Mc"):
        return character
    return f" {character} " if category == "So" and character > "\xff" else " "


def _pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    found: list[str] = []
    for place, character in enumerate(run):
        if _IS_SINGLE.match(character):
            found.append(character)
        found.append(run[place : place + 2])
    # the last character has no right neighbour; if it is a word of its own, it is in the list
    return found[:-1]
