"""Words that the core does not use, because only a device without hardware has what they name."""

from __future__ import annotations

import re

# Words of the simulator: poisoned memory, red zones, injected faults, the sanitizer, schedules, borrowed kernels.
WORDS = {
    *("poison", "poisoned", "fault", "faults", "faulty", "sanitize", "sanitizer", "sanitizers", "chaos"),
    *("borrow", "borrowed", "simulate", "simulated", "simulation", "simulator"),
}
PHRASES = re.compile(r"red[ _]?zone|device[ _]?model", re.I)


def named(text: str) -> set[str]:
    """The simulator's words in a text: in its comments, its strings, and the parts of its identifiers."""
    return {part.lower() for part in re.findall(r"[A-Za-z][a-z]*", text)} & WORDS | set(PHRASES.findall(text))
