"""``@pytest.mark.openreg(model=..., memory=..., device_count=..., execution=..., faults=..., no_sync=...)``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields

import pytest

from torch_openreg.simulator import _models
from torch_openreg.simulator._hints import did_you_mean
from torch_openreg.simulator.testing.limits import byte_count


@dataclass(frozen=True)
class Settings:
    """The settings of the device for one test; None if the marker does not set the value."""

    model: str | None = None
    memory: str | None = None
    device_count: int | None = None
    execution: str | None = None
    faults: str | None = None
    no_sync: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for the settings that must be known before the device starts."""
        variables = {
            "OPENREG_MODEL": self.model,
            "OPENREG_DEVICE_MEMORY": self.memory,
            "OPENREG_DEVICE_COUNT": self.device_count,
        }
        return {name: str(value) for name, value in variables.items() if value is not None}


_FEWEST, _MOST = _models.RANGES["device_count"]
_LEAST_MEMORY, _MOST_MEMORY = _models.RANGES["total_memory"]


def _is_memory(value: object) -> bool:
    try:
        return isinstance(value, (int, str)) and _LEAST_MEMORY <= byte_count(value) <= _MOST_MEMORY
    except ValueError:
        return False


# The settings whose wrong values are reported where the device starts, or never: whether a value is possible, and what
# is. None leaves a setting as it is.
_VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "device_count": (
        lambda value: type(value) is int and _FEWEST <= value <= _MOST,
        f"a whole number from {_FEWEST} to {_MOST}",
    ),
    "memory": (
        _is_memory,
        "a number of bytes from 1M to 16384G, or a text with a suffix K, M or G, such as '64M'",
    ),
    "no_sync": (lambda value: isinstance(value, bool), "True or False"),
}


def settings_of(item: pytest.Item) -> Settings:
    """The settings of all markers of a test. The marker closest to the function decides about a setting.

    Raises UsageError for a word that the marker does not know, and for an impossible value of ``device_count``,
    ``memory`` or ``no_sync``. The functions that obey the other settings check their values.
    """
    known = [field.name for field in fields(Settings)]
    values: dict[str, object] = {}
    for marker in item.iter_markers("openreg"):
        for word in (*marker.args, *marker.kwargs):
            if word not in known or word in marker.args:
                hint = did_you_mean(str(word), known)
                raise pytest.UsageError(
                    f"{item.nodeid}: the marker openreg does not take {word!r}.{hint} It takes "
                    f"{', '.join(f'{name}=' for name in known)}."
                )
        values = {**marker.kwargs, **values}
    for name, (is_valid, expected) in _VALUES.items():
        if values.get(name) is not None and not is_valid(values[name]):
            raise pytest.UsageError(
                f"{item.nodeid}: the marker openreg has {name}={values[name]!r}. It takes {expected}."
            )
    return Settings(**values)  # type: ignore[arg-type]


def device_count_of(item: pytest.Item) -> int:
    """The number of devices that the markers of a test ask for; 0 if they leave it to the options, or are wrong."""
    try:
        settings = settings_of(item)
        if settings.device_count is not None:
            return settings.device_count
        if settings.model is None or os.environ.get("OPENREG_DEVICE_COUNT"):  # the variable wins over the model
            return 0
        return int(_models.find(settings.model).numbers.get("device_count", 0))
    except (pytest.UsageError, TypeError, ValueError):  # the run of the test reports the error
        return 0
