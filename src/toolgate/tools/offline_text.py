"""Reads text without a model: counts, sentences, a summary of them, keywords, sentiment, and entities that a pattern finds.

All of it takes time in proportion to the text, whatever is written there. nupunkt and VADER do not: both are given at most a
window of text at a time.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, shortened
from toolgate.extras import require

MAX_OFFLINE_CHARS = 200_000
WINDOW_CHARS = 1_000
"""Also the longest sentence."""
MAX_RANKED = 200
"""Sentences that are compared with each other."""
RANK_ROUNDS = 20
DAMPING = 0.85
MAX_ENTITIES = 200
MIN_TELLING_WORDS = 8
"""From so many words on, English without a single function word is not English."""

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+(?:['\u2019.-][^\W_{CJK}]+)*+")
_CJK_RUN = re.compile(rf"[{CJK}]++")
_ENDS = re.compile(r"[.!?…]++[\"'\u201d\u2019)\]]*+(?=\s|\Z)|[\u3002\uff01\uff1f]++")
_CJK_END = re.compile(r"(?<=[\u3002\uff01\uff1f])")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_ENGLISH = """
a about after all also am an and any are as at be because been before being but by can could did do does for from get
had has have he her here him his how i if in into is it its just me more most my no not of off on only or other our
out over she should so some such than that the their them then there these they this those to too under up us very was
we were what when where which while who why will with would you your"""
_OTHERS = """
der die das und ist nicht ein eine einer eines einem einen mit auf für von dem den des sich auch als wie oder aber
sind wird werden im zu ich sehr le la les des une un et est dans pour que qui sur pas plus avec par ce cette ces son
sa ses du au aux el los las una y en es por con para del se su sus como más pero il lo gli della di che non per sono
nel o os da do dos das em um uma não het een van niet voor met zijn"""
ENGLISH = frozenset(_ENGLISH.split())
STOP_WORDS = ENGLISH | frozenset(_OTHERS.split())


class TextEntity(TypedDict):
    """Something that a text names."""

    text: str
    type: str


# -- words and sentences


class TextCounts(TypedDict):
    """The size of a text."""

    characters: int
    words: int
    sentences: int
    paragraphs: int


def count(text: str) -> TextCounts:
    """Characters, words, sentences and paragraphs."""
    return {
        "characters": len(text),
        "words": sum(1 for _ in _WORD.finditer(text)),
        "sentences": _count_sentences(text),
        "paragraphs": sum(1 for part in _PARAGRAPHS.split(text) if part.strip()),
    }


def _count_sentences(text: str) -> int:
    """Ends of sentences, and what follows the last of them. It needs no extra, and takes `Dr. Who` for two."""
    position = number = 0
    for end in _ENDS.finditer(text):
        number += _WORD.search(text, position, end.start()) is not None
        position = end.end()
    return number + (_WORD.search(text, position) is not None)


def words_of(text: str) -> list[str]:
    return [word[0].lower() for word in _WORD.finditer(text)]


def sentences_of(text: str) -> list[str]:
    """The sentences of a text; of one that is longer than a window, parts of it."""
    found = [" ".join(part.split()) for paragraph in _PARAGRAPHS.split(text) for part in _windows(paragraph)]
    return [part for sentence in found for part in _CJK_END.split(sentence) if _WORD.search(part)]


def _windows(paragraph: str) -> Iterator[str]:
    require("text")
    from nupunkt import sent_spans

    position = 0
    while position < len(paragraph):
        window = paragraph[position : position + WINDOW_CHARS]
        spans = sent_spans(window) or [(0, len(window))]
        is_last = position + len(window) == len(paragraph)
        if not is_last and spans[-1][0] > WINDOW_CHARS // 2:  # the last sentence may go on beyond the window
            end = spans.pop()[0]
        else:
            end = len(window) if is_last else window.rfind(" ", WINDOW_CHARS // 2) + 1 or len(window)
        yield from (window[start : min(stop, end)] for start, stop in spans)
        position += end


# -- a summary: the sentences that share most with the others (TextRank)


def summarize(text: str, most: int) -> str:
    whole = " ".join(text.split())
    if len(whole) <= most:
        return whole
    sentences = sentences_of(text)
    order = sorted(_ranked(sentences), key=lambda pair: -pair[1])
    linked = [pair for pair in order if pair[1] > 1 - DAMPING]  # the others share no word with any
    order = linked or order
    chosen: list[int] = []
    left = most
    for index, _ in order:
        if len(sentences[index]) + 1 <= left:
            chosen.append(index)
            left -= len(sentences[index]) + 1
    if chosen:
        return " ".join(sentences[index] for index in sorted(chosen))
    return shortened(sentences[order[0][0]], most - 1) + "…"


def _ranked(sentences: Sequence[str]) -> list[tuple[int, float]]:
    """Sentences by number with their weight. Of many, those whose words are the most frequent are compared."""
    bags = [_telling(sentence) for sentence in sentences]
    frequency = Counter(word for bag in bags for word in bag)
    by_words = sorted(range(len(bags)), key=lambda i: -sum(frequency[word] for word in bags[i]) / (len(bags[i]) + 3))
    kept = sorted(by_words[:MAX_RANKED])
    links = [[_similarity(bags[a], bags[b]) if a != b else 0.0 for b in kept] for a in kept]
    totals = [sum(row) or 1.0 for row in links]
    scores = [1.0] * len(kept)
    for _ in range(RANK_ROUNDS):
        given = [score / total for score, total in zip(scores, totals, strict=True)]
        scores = [1 - DAMPING + DAMPING * sum(map(float.__mul__, row, given)) for row in links]
    return list(zip(kept, scores, strict=True))


def _telling(sentence: str) -> frozenset[str]:
    pairs = [run[i : i + 2] for run in _CJK_RUN.findall(sentence) for i in range(len(run) - 1)]
    return frozenset([*pairs, *(word for word in words_of(sentence) if len(word) > 2 and word not in STOP_WORDS)])


def _similarity(first: frozenset[str], second: frozenset[str]) -> float:
    shared = len(first & second)
    return shared / (math.log(len(first)) + math.log(len(second)) + 1) if shared else 0.0


# -- keywords: phrases between stop words, as in RAKE, weighed by how often they and their words come

MAX_PHRASE_WORDS = 3
LONGER_PHRASE = 0.25
"""What each word more is worth."""
_PHRASE_END = re.compile(r"[^\w\s'\u2019-]+|\n")


def keywords(text: str, most: int) -> list[str]:
    phrases = Counter(_phrases(text))
    frequency: Counter[str] = Counter()
    for phrase, times in phrases.items():
        for word in phrase:
            frequency[word] += times

    def weight(phrase: tuple[str, ...]) -> float:
        mean = sum(frequency[word] for word in phrase) / len(phrase)
        return mean * (1 + LONGER_PHRASE * (len(phrase) - 1)) * (1 + math.log(phrases[phrase]))

    ranked = sorted(phrases, key=lambda phrase: (-weight(phrase), phrase))
    chosen: dict[tuple[str, ...], None] = {}
    for phrase in ranked[: most * 4]:
        if not any(set(phrase) <= set(one) for one in chosen):
            chosen[phrase] = None
    return [" ".join(phrase) for phrase in list(chosen)[:most]]


def _phrases(text: str) -> Iterator[tuple[str, ...]]:
    for part in _PHRASE_END.split(text):
        for run in _CJK_RUN.findall(part):
            yield from ((run[i : i + 2],) for i in range(len(run) - 1))
        phrase: list[str] = []
        for word in words_of(_CJK_RUN.sub(" ", part)):
            if word in STOP_WORDS or len(word) < 3 or word.isdigit():
                if phrase:
                    yield tuple(phrase[:MAX_PHRASE_WORDS])
                phrase = []
            else:
                phrase.append(word)
        if phrase:
            yield tuple(phrase[:MAX_PHRASE_WORDS])


# -- sentiment, in English


def sentiment(text: str) -> tuple[Literal["positive", "negative", "neutral"], float]:
    """positive, negative or neutral, and from -1 to 1 how much so: the mean of its sentences that say anything."""
    words = words_of(text)
    if sum(word.isascii() for word in words) * 2 < len(words) or (
        len(words) >= MIN_TELLING_WORDS and ENGLISH.isdisjoint(words)
    ):
        raise InvalidInput(
            "Without a language model, sentiment is told of English only.",
            suggestion="Give an English text, or have a model configured: the setting model.name.",
        )
    analyzer = _analyzer()
    scores = [analyzer.polarity_scores(sentence)["compound"] for sentence in sentences_of(text)]
    telling = [score for score in scores if score] or [0.0]
    mean = round(sum(telling) / len(telling), 3)
    return ("positive" if mean >= 0.05 else "negative" if mean <= -0.05 else "neutral"), mean


@cache
def _analyzer() -> Any:
    require("text")
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


# -- entities: what a pattern surely finds

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_NUMBER = r"\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,15})?"
_CURRENCY = r"USD|EUR|GBP|JPY|CHF|CNY|INR|RWF|dollars?|euros?|pounds?"
_ENTITY = re.compile(
    rf"""(?P<url>https?://[^\s<>"']{{1,500}})
    |(?P<email>(?<![\w.+-])[\w.+-]{{1,64}}@[A-Za-z0-9-]{{1,63}}(?:\.[A-Za-z0-9-]{{1,63}}){{1,5}})
    |(?P<date>(?<![\w.-])(?:\d{{4}}-\d{{2}}-\d{{2}}(?:T\d{{2}}:\d{{2}}(?::\d{{2}})?(?:Z|[+-]\d{{2}}:\d{{2}})?)?
        |\d{{1,2}}\.?\ {_MONTH}\ \d{{4}}|{_MONTH}\ \d{{1,2}}(?:st|nd|rd|th)?,?\ \d{{4}})(?!\w))
    |(?P<money>[$€£¥]\ ?{_NUMBER}(?:\ (?:million|billion))?(?!\w)|(?<![\w.,]){_NUMBER}\ ?(?:€|(?:{_CURRENCY})\b))
    |(?P<percentage>(?<![\w.,]){_NUMBER}\ ?%)
    |(?P<number>(?<![\w.,-])-?{_NUMBER}(?![\w%]|[.,-]\d))""",
    re.VERBOSE,
)


def entities(text: str) -> list[TextEntity]:
    """E-mail addresses, URLs, dates, money, percentages and numbers, each once, in their order."""
    found: dict[tuple[str, str], None] = {}
    for match in _ENTITY.finditer(text):
        kind = match.lastgroup or ""
        words = match[0].rstrip(".,;:!?)]}") if kind == "url" else match[0]
        found.setdefault((words, kind))
        if len(found) == MAX_ENTITIES:
            break
    return [{"text": words, "type": kind} for words, kind in found]
