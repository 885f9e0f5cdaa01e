"""Words that the core does not use, because only a device without hardware has what they name.

A test may use more of these words than it needs: it may describe a simulated device, or a page fault. USES finds the
tests that need a part of the simulator.
"""

from __future__ import annotations

import re

# Words of the simulator: poisoned memory, red zones, injected faults, the sanitizer, schedules, borrowed kernels.
WORDS = {
    *("poison", "poisoned", "fault", "faults", "faulty", "sanitize", "sanitizer", "sanitizers", "chaos"),
    *("borrow", "borrowed", "simulate", "simulated", "simulation", "simulator"),
}
USES = re.compile(
    r"chaos|poison|sanitizer|orFault|orRequest|orSetDeviceModel|OPENREG_(FAULTS|MODEL)|openreg\.(faults|models)"
    r"|auto \(the default\), gloo|\[gloo\]",
    re.I,
)
PHRASES = re.compile(r"red[ _]?zone|device[ _]?model", re.I)


def named(text: str) -> set[str]:
    """The simulator's words in a text: in its comments, its strings, and the parts of its identifiers."""
    return {part.lower() for part in re.findall(r"[A-Za-z][a-z]*", text)} & WORDS | set(PHRASES.findall(text))
