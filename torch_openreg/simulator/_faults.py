"""Reads programs of faults, such as ``"malloc:3=oom; copy~2ms; device1@kernel:40=lost"``.

The docstring of ``torch.openreg.faults`` explains the language. This module does not need torch, so that
OPENREG_FAULTS is checked before the device is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch_openreg.simulator._hints import did_you_mean
from torch_openreg.simulator._sizes import byte_count

# The values of orFaultPoint, orFaultAction and orFaultDuration in openreg_faults.h.
POINTS = {
    "malloc": 1,  # a tensor asks the caching allocator for a block
    "segment": 2,  # the caching allocator asks the device for memory
    "pinned": 4,
    "kernel": 8,
    "copy": 16,
    "memset": 32,
    "stream": 64,
    "event": 128,
    "ipc": 256,
    "start": 512,
    "message": 1024,  # of torch.distributed: a collective, a send or a recv
    "launch": 2048,  # the call that launches a kernel
    "*": 8 | 16 | 32,
}
FAILS, DELAYS, SLOWS, FLIPS, DROPS, KILLS = range(6)
ONCE, UNTIL_REMOVED, FOR_THE_PROCESS = range(3)
ERRORS = {  # word -> the code of CUDA's error of this kind
    "oom": 2,  # out of memory
    "driver": 35,  # the driver is too old
    "busy": 46,  # the device is busy or unavailable
    "nodevice": 100,  # no device is detected
    "ecc": 214,  # uncorrectable ECC error
    "illegal": 700,  # illegal memory access
    "assert": 710,  # device-side assert
    "failure": 719,  # unspecified launch failure
}
ACTIONS = {  # word -> the action, the points at which it is allowed, and the reason in the error message
    "flip": (FLIPS, ("copy",), "only a copy can have a flipped bit, and flip has no '!'"),
    "drop": (DROPS, ("message",), "only a message can be dropped, and drop has no '!'"),
    "kill": (KILLS, tuple(POINTS), "kill has no '!'"),
}
WITHOUT_SIZE = ("kernel", "launch", "stream", "event", "ipc", "start")  # their calls are for 0 bytes
EFFECTS = (*ERRORS, "lost", *ACTIONS)
MANY = 2**64 - 1
LAST_DEVICE = 63  # OPENREG_DEVICE_COUNT is at most 64
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_FAULT = re.compile(
    r"(?:rank(?P<rank>\d+)@)?(?:device(?P<device>\d+)@)?(?P<point>\w+|\*)(?::(?P<which>[^=~x]+))?"
    r"(?:=(?P<effect>\w+)(?P<sticky>!?)|~(?P<delay>[\d.]+)(?P<unit>[a-z]*)|x(?P<factor>[\d.]+))"
)


@dataclass(frozen=True)
class Fault:
    """One fault, with the fields of ``orFault`` in openreg_faults.h."""

    text: str
    points: int
    device: int = -1
    calls: tuple[int, int] = (1, MANY)
    min_size: int = 0
    chance: tuple[float, int] = (1.0, 0)
    action: int = FAILS
    error: int = 0
    duration: int = ONCE
    amount: float = 0.0


def _known(kind: str, word: str, words: Iterable[str], text: str) -> str:
    words = list(words)
    if word in words:
        return word
    hint = did_you_mean(word, [*words, "seed"] if kind == "point" else words)
    raise ValueError(f"The fault {text!r} has the unknown {kind} {word!r}.{hint} There are {', '.join(words)}.")


def _number(text: str, what: str, fault: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"The fault {fault!r} has {text!r} where {what} belongs.") from None


def _which(which: str, text: str, seed: int) -> dict[str, object]:
    if which == "*":
        return {}
    if found := re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", which):
        first = int(found[1])
        last = MANY if found[2] else int(found[3] or first)
        if 1 <= first <= last <= MANY:
            return {"calls": (first, last)}
    elif which.startswith(">") and (size := byte_count(which[1:])) is not None and size < MANY:
        return {"min_size": size + 1}
    elif which.startswith("p"):
        probability = _number(which[1:], "a probability", text)
        if 0 < probability <= 1:
            return {"chance": (probability, seed)}
    raise ValueError(
        f"The fault {text!r} does not say which calls: {which!r} is none of * (all), 3 (the third), 3-5, 3+ (from the "
        "third on), >64M (of more than 64 MiB) and p0.1 (each with the probability 0.1, above 0 and at most 1)."
    )


def _parse_one(text: str, seed: int) -> Fault | None:
    """The fault that ``text`` describes; None if the fault is for another rank."""
    found = _FAULT.fullmatch(re.sub(r"\s", "", text))
    if not found:
        before = re.match(r"([A-Za-z]+)\d*@", text)
        hint = did_you_mean(before[1], ("rank", "device")) if before else ""
        raise ValueError(
            f"The fault {text!r} cannot be read.{hint} It is written [rankN@][deviceN@]POINT[:WHICH]EFFECT, and EFFECT "
            "is =WORD or =WORD! (an error or an action), ~2ms (2 ms late) or x2.5 (2.5 times as long): malloc:3=oom, "
            "copy~2ms, device1@kernel:40=lost, kernel x2.5."
        )
    point = _known("point", found["point"], POINTS, text)
    own = os.environ.get("RANK")  # as torchrun sets it
    if found["rank"] and own is None:
        raise ValueError(
            f"The fault {text!r} is for one rank, but the variable RANK, the rank of this process, is not set."
        )
    fields: dict[str, object] = {"points": POINTS[point], "device": -1}
    if found["device"]:
        fields["device"] = int(found["device"])
        if int(found["device"]) > LAST_DEVICE:
            raise ValueError(f"The fault {text!r} is for a device above {LAST_DEVICE}.")
    fields["chance"] = (1.0, seed)
    fields |= _which(found["which"] or "*", text, seed)
    if "min_size" in fields and point in WITHOUT_SIZE:
        raise ValueError(f"The fault {text!r} makes no sense: the calls of {point!r} have no size.")
    if point == "start" and found["device"]:
        raise ValueError(f"The fault {text!r} makes no sense: all devices start together.")
    if found["effect"]:
        effect = _known("effect", found["effect"], EFFECTS, text)
        if effect in ACTIONS:
            fields["action"], points, reason = ACTIONS[effect]
            if point not in points or found["sticky"]:
                raise ValueError(f"The fault {text!r} makes no sense: {reason}.")
        else:
            fields["error"] = ERRORS["busy" if effect == "lost" else effect]
            fields["duration"] = FOR_THE_PROCESS if found["sticky"] else UNTIL_REMOVED if effect == "lost" else ONCE
    elif found["delay"]:
        unit = _known("unit of time", found["unit"], _UNITS, text)
        fields |= {"action": DELAYS, "amount": _number(found["delay"], "a time", text) * _UNITS[unit]}
    else:
        factor = _number(found["factor"], "a factor", text)
        if factor < 1 or not POINTS[point] & POINTS["*"]:
            raise ValueError(
                f"The fault {text!r} makes no sense: kernels, copies and memsets can be slower, by a factor of at "
                "least 1."
            )
        fields |= {"action": SLOWS, "amount": factor}
    is_own = not found["rank"] or str(int(found["rank"])) == own
    return Fault(text, **fields) if is_own else None  # type: ignore[arg-type]


def parse(program: str) -> list[Fault]:
    """The faults of a program, whose parts are separated by semicolons, without the faults of other ranks.

    A part ``seed=N`` sets the seed of the faults after this part. Raises ValueError for a program that cannot be read,
    or has no fault. For an unknown word, the message has a known word if one is close. Raises TypeError if ``program``
    is no text.
    """
    if not isinstance(program, str):
        raise TypeError(f"A program of faults is a text, such as 'malloc:3=oom', but got {program!r}.")
    seed = 0
    faults: list[Fault | None] = []
    for part in filter(None, map(str.strip, program.split(";"))):
        if found := re.fullmatch(r"seed\s*=\s*(.*)", part):
            if not re.fullmatch(r"[0-9]+", found[1]):
                raise ValueError(f"The part {part!r} has {found[1]!r} where a whole number from 0 to {MANY} belongs.")
            seed = int(found[1])
            if seed > MANY:
                raise ValueError(f"The part {part!r} has a seed above {MANY}.")
        else:
            faults.append(_parse_one(part, seed))
    if not faults:
        raise ValueError(f"The program {program!r} has no fault. An example: malloc:3=oom")
    return [fault for fault in faults if fault is not None]
