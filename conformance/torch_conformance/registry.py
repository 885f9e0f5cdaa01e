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

RESULTS = ("passed", "noted", "failed", "crashed", "hung", "needs operator", "not offered")
"""Every result of a check. "noted" is a check that passed with a note: see `note`."""
BAD = RESULTS[2:5]

Body = Callable[[str], None]


class NotOffered(Exception):
    """The backend does not have an optional ability that a check needs. The message names the ability."""


NOTES: list[str] = []
"""What the running check has noted: see `note`."""


def note(text: str) -> None:
    """Notes a difference that is no failure. A check that passes with a note has the result "noted".

    Examples are a device that refuses what CUDA accepts, and an error whose message has other words than PyTorch's.
    """
    if text not in NOTES:
        NOTES.append(text)


# The phrases with which error messages say that the device has no kernel for an operator or a dtype.
_ABSENT = re.compile(
    r"Could not run '|not implemented for|not currently implemented|is not supported on|Unsupported dtype"
)
# PyTorch's error for an operator without a kernel, or its repr(), which may have a backslash before each quote. The
# operators that checks define are in namespaces of their own.
_COULD_NOT_RUN = re.compile(r"Could not run \\?'((?!conformance)\w+::[\w.]+)\\?'")
# Other words of backends for the same, in an error of any type: Operator 'aten::linspace.out' is not implemented for ...
_NOT_IMPLEMENTED = re.compile(r"[Oo]perator \\?'((?!conformance)\w+::[\w.]+)\\?' is not (?:currently )?implemented")
# An operator in the message of a NotImplementedError: aten::add.out, or aten.add.out as Python prints it.
_OPERATOR = re.compile(r"\b(aten|prims)(?:::|\.)(\w+(?:\.\w+)?)")


def missing_operator(error: BaseException | None) -> str:
    """The operator for which an error, or one of its causes, says that the device has no kernel: ``aten::add.out``.

    The empty string if no error says so.
    """
    while error is not None:
        if found := _COULD_NOT_RUN.search(str(error)) or _NOT_IMPLEMENTED.search(str(error)):
            return found[1]
        says_so = isinstance(error, NotImplementedError) or type(error).__name__ == "OperatorNotFound"
        if says_so and (found := _OPERATOR.search(str(error))):
            return f"{found[1]}::{found[2]}".removesuffix(".default")
        error = error.__cause__
    return ""


def device_side(function: Callable[[], Any]) -> Any:
    """Returns what ``function`` returns.

    Raises NotOffered if ``function`` raises NotImplementedError, or a RuntimeError or TypeError whose message says that
    the device has no kernel. If the message names the operator, the error itself is raised: see `missing_operator`.
    """
    try:
        return function()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        if missing_operator(error):
            raise
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
