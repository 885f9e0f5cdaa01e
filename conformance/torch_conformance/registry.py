"""The declaration of checks.

A check is a small function. Its one argument is the device as a string. The function raises if the backend is wrong:

    views = Topic("tensors/views", why="...", defined="...", chapter="storage")

    @views.check()
    def a_slice_shares_memory(device):
        "Writing through a slice changes its base."
        ...

The name of this check is ``tensors/views/a_slice_shares_memory``. The docstring is the sentence that the check proves.
A `Topic` holds what its checks have in common: why they matter, where PyTorch defines the behaviour, the chapter that
shows how to implement it, and the abilities that the checks need. It may also name a public issue (as
``owner/repository#number``) in which a real backend or program had the mistake.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LEVELS = (
    "loads",
    "tensors",
    "operators",
    "trains",
    "memory",
    "streams",
    "processes",
    "compiled",
    "tools",
)
"""The levels, in the order in which a young backend reaches them. The number of a level is its position."""

Body = Callable[[str], None]


class NotOffered(Exception):
    """The backend does not have an optional ability that a check needs. The message names the ability."""


# The phrases with which error messages say that the device has no kernel for an operator or a dtype.
_ABSENT = re.compile(
    r"Could not run '|not implemented for|not currently implemented|is not supported on|Unsupported dtype"
)


def device_side(function: Callable[[], Any]) -> Any:
    """Returns what ``function`` returns.

    Raises NotOffered if ``function`` raises NotImplementedError, or a RuntimeError or TypeError whose message says that
    the device has no kernel.
    """
    try:
        return function()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        if isinstance(error, NotImplementedError) or _ABSENT.search(str(error)):
            raise NotOffered(f"{type(error).__name__}: {error}") from error
        raise


@dataclass(frozen=True)
class Check:
    """One check, and what the report says about it."""

    name: str
    proves: str
    why: str
    defined: str
    chapter: str
    body: Body
    needs: tuple[str, ...] = ()
    quick: bool = True
    issue: str = ""
    may_lose_the_device: bool = False

    @property
    def level(self) -> int:
        return level_of(self.name)

    def source(self) -> str:
        """The source of the function without its decorators and docstring, dedented."""
        lines = textwrap.dedent(inspect.getsource(self.body)).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("def "))
        text = "\n".join(lines[start:])
        doc = self.body.__doc__
        assert doc is not None
        for quotes in ('"""', '"'):
            text = text.replace(f"    {quotes}{doc}{quotes}\n", "", 1)
        return text


def level_of(name: str) -> int:
    """The number of the level with which a check's name begins."""
    return LEVELS.index(name.split("/", 1)[0])


CHECKS: dict[str, Check] = {}


@dataclass(frozen=True)
class Topic:
    """The common properties of the checks of one topic. ``name`` is ``level/topic``."""

    name: str
    why: str
    defined: str
    chapter: str
    needs: tuple[str, ...] = ()
    issue: str = ""

    def check(
        self,
        *needs: str,
        why: str = "",
        defined: str = "",
        chapter: str = "",
        quick: bool = True,
        issue: str = "",
        may_lose_the_device: bool = False,
    ) -> Callable[[Body], Body]:
        """Registers a function as a check.

        Args:
            needs: names of abilities in `abilities.ABILITIES`. If the device lacks one, the result is "not offered".
            why, defined, chapter, issue: the values of this check, if they differ from the topic's.
            quick: whether ``--quick`` runs this check too.
            may_lose_the_device: whether the device may be unusable after the check, as after an index error on CUDA.
        """

        def register(body: Body) -> Body:
            name = f"{self.name}/{body.__name__}"
            assert name not in CHECKS and body.__doc__, name
            CHECKS[name] = Check(
                name,
                " ".join(body.__doc__.split()),
                why or self.why,
                defined or self.defined,
                chapter or self.chapter,
                body,
                (*self.needs, *needs),
                quick,
                issue or self.issue,
                may_lose_the_device,
            )
            return body

        return register


@functools.cache
def all_checks() -> dict[str, Check]:
    """All hand-written checks by name, in the order of the levels: without the cases of `sweep`. Imports torch."""
    for level, name in enumerate(LEVELS):
        importlib.import_module(f"torch_conformance.checks.level{level}_{name}")
    return dict(sorted(CHECKS.items(), key=lambda item: item[1].level))
