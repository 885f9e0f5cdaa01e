"""``@pytest.mark.openreg(model=..., memory=..., execution=..., faults=..., no_sync=...)``."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from torch_openreg._hints import did_you_mean


@dataclass(frozen=True)
class Settings:
    """The settings of the device for one test; None if the marker does not set the value."""

    model: str | None = None
    memory: str | None = None
    execution: str | None = None
    faults: str | None = None
    no_sync: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for the settings that must be known before the device starts."""
        variables = {"OPENREG_MODEL": self.model, "OPENREG_DEVICE_MEMORY": self.memory}
        return {name: str(value) for name, value in variables.items() if value is not None}


def settings_of(item: pytest.Item) -> Settings:
    """The settings of all markers of a test. The marker closest to the function decides about a setting.

    Raises UsageError for a word that the marker does not know.
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
    return Settings(**values)  # type: ignore[arg-type]
