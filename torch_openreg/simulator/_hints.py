"""The word that a message proposes for an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with the closest of the known words; the empty string if no known word is close.

    Upper and lower case count as the same.
    """
    by_lower_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), list(by_lower_case), n=1, cutoff=0.5)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""
