"""Words for the offline model: how a text is cut into them, and which of them mean nothing for choosing a tool."""

from __future__ import annotations

import re
from itertools import pairwise

_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_UPPER = {"id", "ids", "url", "urls", "api", "uuid", "isbn", "sku", "vat", "iban", "ip", "pdf", "usd", "eur", "pin"}

STOP_WORDS = frozenset(
    """a about all am an and any are as at be been being but by can could did do does doing done for from get give
    had has have having he her here hers him his how i if in into is it its just let like make may me might mine must
    my need no not now of off on one or our out over please she should so some than that the their them then there
    these they thing things this those to too up us use very want was we were what when where which who whom whose why
    will with would you your yours i'd i'll i'm it's let's what's where's who's""".split()  # noqa: SIM905 - a text reads better
)

QUESTION_WORDS = frozenset(
    """am are did do does had has have how is was were what what's when when's where where's which who who's whom whose
    why how's""".split()  # noqa: SIM905 - a text reads better
)

# verbs of tools that only look, in any app
READING_WORDS = frozenset(
    """browse check compare compute count describe display explain fetch find get info inspect list lookup look
    preview query read retrieve review search see show status summarize tell track view watch""".split()  # noqa: SIM905 - a text reads better
)

# what the name of a tool that only looks ends with, when it begins with no verb
READING_NOUNS = frozenset(
    """balance details forecast history info information list overview price schedule stats status
    summary weather""".split()  # noqa: SIM905 - a text reads better
)

# verbs of tools that change something, where the rest of the name would say otherwise: `set_status`
ACTING_WORDS = frozenset(
    """add append book borrow buy cancel change close create delete edit lock make move open order pay post put refund
    remove rename reset return save schedule send set start stop store submit switch turn unlock update write""".split()  # noqa: SIM905 - a text reads better
)


def tokens(text: str) -> list[str]:
    """Return the words of a text, in lower case, in order."""
    return [token.replace("’", "'") for token in _TOKEN.findall(text.lower())]


def stem(word: str) -> str:
    """Return a word without its endings, so that `refunds`, `refunded` and `refunding` are one (light, English)."""
    word = word.removesuffix("'s").removesuffix("'")
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    word = word.removesuffix("e") if len(word) > 3 else word
    if len(word) > 2 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") else word


def stems(text: str) -> list[str]:
    """Return the stems of the words of a text that mean something, in order."""
    return [stem(word) for word in tokens(text) if word not in STOP_WORDS]


def joined(words: list[str]) -> list[str]:
    """Return the stems of neighbours written as one word: `look up` is `lookup` to whoever named the tool so."""
    return [stem(first + second) for first, second in pairwise(words)]


def name_words(name: str) -> list[str]:
    """Return the words of a snake_case, kebab-case or camelCase name, in lower case."""
    return [part.lower() for part in _NAME_PART.findall(name)]


def humanise(name: str) -> str:
    """Return a name as a person reads it: `refund_id` is `Refund ID`."""
    words = [
        word.upper().replace("IDS", "IDs").replace("URLS", "URLs") if word in _UPPER else word
        for word in name_words(name)
    ]
    if not words:
        return name
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])
