"""Reads device models: the accelerators that the simulated devices represent. Each is a file of JSON in ``models``.

This module does not need torch, so that OPENREG_MODEL is checked before the device is loaded, and so that models can be
listed without torch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from torch_openreg._hints import did_you_mean

FOLDER = os.path.join(os.path.dirname(__file__), "models")
ERRORS = ("NotImplementedError", "RuntimeError", "TypeError")  # in the order of C++'s RefusalError
PROPERTIES = {  # the numbers of get_device_properties() that a model may set, with their units
    "name": "",
    "total_memory": "bytes",
    "major": "compute capability",
    "minor": "compute capability",
    "multi_processor_count": "",
    "warp_size": "threads",
    "max_threads_per_block": "",
    "max_threads_per_multi_processor": "",
    "regs_per_multiprocessor": "",
    "shared_memory_per_block": "bytes",
    "shared_memory_per_block_optin": "bytes",
    "shared_memory_per_multiprocessor": "bytes",
    "L2_cache_size": "bytes",
    "clock_rate": "kHz",
    "memory_clock_rate": "kHz",
    "memory_bus_width": "bits",
    "is_integrated": "",
    "is_multi_gpu_board": "",
    "device_count": "",
    "peer_access": "",
    "allocation_alignment": "bytes",
}
_RESTRICTIONS = ("absent_dtypes", "missing_operators", "refusals")
_KEYS = ("about", "like", "properties", "tf32", "alerts", "only_operators", *_RESTRICTIONS)


@dataclass(frozen=True)
class Model:
    """One model, with the values that it inherits from the models in ``like``."""

    name: str
    about: str = ""
    properties: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> value, source
    tf32: dict[str, Any] | None = None
    alerts: dict[str, Any] | None = None  # whether torch.use_deterministic_algorithms makes CUDA's operators raise
    only_operators: dict[str, Any] | None = None
    absent_dtypes: tuple[dict[str, Any], ...] = ()
    missing_operators: tuple[dict[str, Any], ...] = ()
    refusals: tuple[dict[str, Any], ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """The properties' values, by name."""
        return {name: each["value"] for name, each in self.properties.items()}

    @property
    def restricted(self) -> bool:
        """Whether the model refuses any operator or dtype."""
        return bool(self.only_operators or self.absent_dtypes or self.missing_operators or self.refusals)


def names() -> list[str]:
    """The names of the models in this package. A file with an underscore at the begin is a part of other models."""
    return sorted(file[:-5] for file in os.listdir(FOLDER) if file.endswith(".json") and not file.startswith("_"))


def find(name: str) -> Model:
    """A model by its name, or by the path of a file, which ends with ``.json``.

    Raises ValueError for an unknown name, with the closest name, and for a file that is not a model.
    """
    if name.endswith(".json"):
        return _read(name, os.path.basename(name)[:-5])
    if name not in names():
        hint = did_you_mean(name, names())
        raise ValueError(
            f"There is no device model {name!r}.{hint} There are {', '.join(names())}, and files: NAME.json."
        )
    return _read(os.path.join(FOLDER, f"{name}.json"), name)


def _read(path: str, name: str) -> Model:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"The device model {path} cannot be read: {error}") from None
    for key in data:
        if key not in _KEYS:
            raise ValueError(f"The device model {path} has the unknown key {key!r}. There are {', '.join(_KEYS)}.")
    for word, each in data.get("properties", {}).items():
        if word not in PROPERTIES:
            hint = did_you_mean(word, PROPERTIES)
            raise ValueError(f"The device model {path} has the unknown property {word!r}.{hint}")
        _check_source(each, f"the property {word!r}", path)
    model = Model(name, data.get("about", ""))
    for other in data.get("like", ()):
        folder = os.path.dirname(path)
        part = f"{other}.json"
        model = _joined(
            model, _read(os.path.join(folder if os.path.exists(os.path.join(folder, part)) else FOLDER, part), other)
        )
    own = Model(
        name,
        data.get("about", ""),
        data.get("properties", {}),
        data.get("tf32"),
        data.get("alerts"),
        data.get("only_operators"),
        tuple(data.get("absent_dtypes", ())),
        tuple(data.get("missing_operators", ())),
        tuple(data.get("refusals", ())),
    )
    for kind in ("tf32", "alerts", "only_operators"):
        if kind in data:
            _check_source(data[kind], kind, path)
    for kind in _RESTRICTIONS:
        for each in getattr(own, kind):
            _check_source(each, f"an entry of {kind}", path)
    return _joined(own, model)


def _check_source(entry: object, what: str, path: str) -> None:
    if not isinstance(entry, dict) or not entry.get("source"):
        raise ValueError(f'The device model {path} gives no source for {what}. It is written with a "source".')


def _joined(first: Model, second: Model) -> Model:
    """The values of ``first``, and those that only ``second`` has. The restrictions of both hold."""
    return Model(
        first.name,
        first.about,
        {**second.properties, **first.properties},
        first.tf32 or second.tf32,
        first.alerts or second.alerts,
        first.only_operators or second.only_operators,
        first.absent_dtypes + second.absent_dtypes,
        first.missing_operators + second.missing_operators,
        first.refusals + second.refusals,
    )
