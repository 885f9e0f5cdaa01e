"""``@pytest.mark.openreg(model=..., memory=..., device_count=..., execution=..., faults=..., no_sync=...)``."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

import pytest

from torch_openreg.simulator import _models
from torch_openreg.simulator._hints import did_you_mean


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


def settings_of(item: pytest.Item) -> Settings:
    """The settings of all markers of a test. The marker closest to the function decides about a setting.

    Raises UsageError for a word that the marker does not know, and for an impossible number of devices.
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
    count = values.get("device_count")
    least, most = _models.RANGES["device_count"]
    if count is not None and not (type(count) is int and least <= count <= most):
        raise pytest.UsageError(
            f"{item.nodeid}: the marker openreg has device_count={count!r}. It takes a whole number from {least} to "
            f"{most}."
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
