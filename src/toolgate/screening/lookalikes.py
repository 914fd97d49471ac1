# ruff: noqa: RUF001 - look-alikes are what this file is about
"""Text as an eye reads it: characters that look like ASCII folded to it, those that nobody sees left out.

For rules about names of files and programs. What a name is folded to is a suspicion, never what is opened or run.
"""

import re
import unicodedata

_WORDS = re.compile(r"[^\W_]+|[^\w\s]")
"""Words, and signs one by one."""
BLANK = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0\u2800"), None)
"""Letters that show nothing, though Unicode does not class them as format characters."""

# What NFKD does not turn into ASCII by itself: letters of other alphabets, and dots, dashes and strokes of other kinds.
_SAME = {
    "a": "аαɑ", "b": "ЬƄ", "c": "сϲᴄ", "d": "ԁɗ", "e": "еєεҽ", "f": "ƒ", "g": "ɡց", "h": "һհ", "i": "іιıɩӏΙІ", "j": "јϳ",
    "k": "кκҟ", "l": "ⅼӀǀ", "m": "мΜ", "n": "ոпηռ", "o": "оοσօө", "p": "рρ", "q": "ԛգ", "r": "гᴦɾ", "s": "ѕꜱ", "t": "тτ",
    "u": "υսцᴜ", "v": "νѵᴠ", "w": "ωԝшѡ", "x": "хχ×", "y": "уγүʏ", "z": "ᴢʐ",
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "H": "НΗ", "J": "Ј", "K": "КΚ", "M": "МΜ", "N": "Ν", "O": "ОΟ", "P": "РΡ",
    "S": "ЅՏ", "T": "ТΤ", "V": "ѴᏙ", "W": "Ԝ", "X": "ХΧ", "Y": "ΥҮ", "Z": "Ζ",
    ".": "。｡·・܁܂", "/": "⁄∕⧸╱〳", "\\": "∖⧵⧹", "-": "‐‑‒–—―−﹣－", "_": "ˍ﹍﹎﹏", "~": "∼˜〜",
}  # fmt: skip
FOLDED = BLANK | {ord(char): plain for plain, chars in _SAME.items() for char in chars}


_WRITTEN_OUT = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
"""As `visible` writes what can't be seen."""


def fold(text: str) -> str:
    """The ASCII that a text can be taken for; what looks like nothing else stays as it is."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.translate(FOLDED))
    seen = "".join(char for char in apart if unicodedata.category(char) not in ("Cf", "Mn", "Me"))
    return unicodedata.normalize("NFKC", seen.translate(FOLDED))


def marked(text: str) -> str:
    """The text with each character written out (`\\u0430`) that can be taken for an ASCII one and stands where ASCII is
    expected: in a word that has ASCII letters as well, in one that reads as ASCII altogether, or as a sign beside ASCII.
    Words of other alphabets, and dashes between words, stay as they are."""
    return text if text.isascii() else _WORDS.sub(_marked_word, text)


def _marked_word(found: re.Match[str]) -> str:
    word = found[0]
    if word[0].isalnum():
        is_ours = re.search("[A-Za-z]", word) or fold(word).isascii()
    else:
        beside = found.string[max(found.start() - 1, 0) : found.start()] + found.string[found.end() : found.end() + 1]
        is_ours = any((char.isascii() and not char.isspace()) or _is_lookalike(char) for char in beside)
    if word.isascii() or not is_ours:
        return word
    return "".join(char.encode("unicode_escape").decode() if _is_lookalike(char) else char for char in word)


def _is_lookalike(char: str) -> bool:
    plain = unicodedata.normalize("NFKC", char)
    return not char.isascii() and (bool(FOLDED.get(ord(char))) or (len(plain) == 1 and plain.isascii()))


def person(name: str) -> str:
    """A name as it reads: nobody is two persons by capitals, letters that look like others, or letters that show nothing."""
    whole = _WRITTEN_OUT.sub(lambda found: found[0].encode().decode("unicode_escape"), name)
    return fold(fold(whole).casefold()).strip()


def fold_lower(text: str) -> str:
    """The same, for who does not mind case: a capital can look like one letter and be another in small."""
    return text if text.isascii() else fold(text.lower())


def unseen(text: str) -> str | None:
    """The first character that a person would not see or that changes how the rest is shown, by its number; else None."""
    if text.isascii() and text.isprintable():
        return None
    for char in text:
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or ord(char) in BLANK:
            return f"U+{ord(char):04X}"
    return None
