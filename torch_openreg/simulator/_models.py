"""Reads device models: the accelerators that the simulated devices represent.

A model is a JSON file: one in the folder ``models``, or a file of the user. Importing this module needs no torch, so
models can be listed without torch. Only find_for_this_torch() needs torch, because it looks up operators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch_openreg._identity import identity
from torch_openreg.simulator._hints import did_you_mean

FOLDER = os.path.join(os.path.dirname(__file__), "models")
ERRORS = ("NotImplementedError", "RuntimeError", "TypeError", "ValueError")  # in the order of C++'s RefusalError
PROPERTIES = {  # the properties that a model may set, with their units; most are those of get_device_properties()
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
    "matmul_workspace": "bytes",
    "context_memory": "bytes",
    "communicator_memory": "bytes",
    "exchange_memory": "bytes",
}
RATES = {  # what estimates of time are made of, with their units; see DeviceRates in csrc/simulator/dry/Clock.h
    "flops_float64": "FLOP/s",
    "flops_float32": "FLOP/s",
    "flops_tf32": "FLOP/s",
    "flops_float16": "FLOP/s",
    "flops_bfloat16": "FLOP/s",
    "flops_float8_e4m3fn": "FLOP/s",
    "flops_float8_e5m2": "FLOP/s",
    "memory_bandwidth": "B/s",
    "memory_efficiency": "",
    "matmul_efficiency": "",
    "convolution_efficiency": "",
    "attention_efficiency": "",
    "attention_backward_efficiency": "",
    "host_bandwidth": "B/s",
    "peer_bandwidth": "B/s",
    "peer_efficiency": "",
    "network_bandwidth": "B/s",
    "network_efficiency": "",
    "peer_latency": "s",
    "network_latency": "s",
    "collective_latency": "s",
    "kernel_latency": "s",
    "launch_time": "s",
}
_SIZES = ((30, "GiB"), (10, "KiB"), (0, "bytes"))
_FLAGS = ("is_integrated", "is_multi_gpu_board", "peer_access")
RANGES = {
    "total_memory": (1 << 20, 1 << 44),
    "device_count": (1, 64),
}  # the ranges of OPENREG_DEVICE_MEMORY and OPENREG_DEVICE_COUNT
_ANY_NUMBER = (0, 2**31 - 1)
_LONGEST_NAME = 63  # bytes: the name in orDeviceProp
DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "complex32", "complex64"),
    *("complex128", "bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
)
_ENTRIES = {  # kind of entry -> the words that an entry must have besides "source", and those that it may have
    "properties": (("value",), ()),
    "rates": (("value",), ()),
    "tf32": (("value",), ()),
    "nondeterminism_checks": (("value",), ()),
    "only_operators": (("operators", "message"), ()),
    "absent_dtypes": (("dtype", "error", "message"), ()),
    "missing_operators": (("operators", "message"), ()),
    "restrictions": (("operators", "argument", "dtypes"), ("kernel", "message", "error", "when")),
}
_RESTRICTIONS = ("absent_dtypes", "missing_operators", "restrictions")
_KEYS = ("about", "like", "properties", "rates", "tf32", "nondeterminism_checks", "only_operators", *_RESTRICTIONS)


@dataclass(frozen=True)
class Model:
    """One model, with the values that it inherits from the models in ``like``."""

    name: str
    about: str = ""
    properties: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> value, source
    rates: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> value, source; empty: not known
    tf32: dict[str, Any] | None = None
    nondeterminism_checks: dict[str, Any] | None = None  # torch.use_deterministic_algorithms raises, as on CUDA
    only_operators: dict[str, Any] | None = None
    absent_dtypes: tuple[dict[str, Any], ...] = ()
    missing_operators: tuple[dict[str, Any], ...] = ()
    restrictions: tuple[dict[str, Any], ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """The properties' values, by name."""
        return {name: each["value"] for name, each in self.properties.items()}

    @property
    def texts(self) -> dict[str, str]:
        """The properties' values as text, by name."""
        return {name: text(name, value) for name, value in self.numbers.items()}

    @property
    def rounds_to_tf32(self) -> bool:
        """Whether convolutions, and matrix products if the program allows it, round their inputs to TensorFloat-32."""
        return bool(self.tf32 and self.tf32["value"])

    @property
    def operators(self) -> list[str]:
        """The names of all operators that the model's restrictions name."""
        entries = [*self.missing_operators, *self.restrictions, *([self.only_operators] if self.only_operators else [])]
        return [name for each in entries for name in each["operators"]]

    @property
    def restricted(self) -> bool:
        """Whether the model refuses any operator or dtype."""
        return bool(self.only_operators or self.absent_dtypes or self.missing_operators or self.restrictions)


def text(name: str, value: Any) -> str:
    """The value of a property as text. Sizes, clock rates, bits and threads have a unit. "-" for None."""
    unit = PROPERTIES[name]
    if value is None:
        return "-"
    if unit == "bytes":
        size, suffix = next((value / (1 << bits), name) for bits, name in _SIZES if value >= 1 << bits or not bits)
        return f"{round(size, 1):g} {suffix}"
    if unit == "kHz":
        return f"{value / 1000:g} MHz"
    return f"{value} {unit}".rstrip() if unit in ("bits", "threads") else str(value)


def names() -> list[str]:
    """The names of the models in this package. A file whose name begins with "_" is a part of other models."""
    return sorted(file[:-5] for file in os.listdir(FOLDER) if file.endswith(".json") and not file.startswith("_"))


def find(name: str | os.PathLike[str]) -> Model:
    """A model by its name, or by the path of a file, which ends with ``.json``.

    Raises ValueError for an unknown name, with the closest name, and for a file that is not a model. Raises TypeError
    if ``name`` is neither a text nor a path.
    """
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(name, str):
        raise TypeError(f"A device model is a name, such as 'cuda-t4', or the path of a file, but got {name!r}.")
    if name.endswith(".json"):
        return _read(name, os.path.basename(name)[:-5])
    if name not in names():
        hint = did_you_mean(name, names())
        raise ValueError(
            f"There is no device model {name!r}.{hint} The models are {', '.join(names())}. The path of a model file "
            "(NAME.json) is accepted, too."
        )
    return _read(os.path.join(FOLDER, f"{name}.json"), name)


def find_for_this_torch(name: str | os.PathLike[str]) -> Model:
    """As ``find``. Also raises ValueError for an operator or an argument that this process's PyTorch does not have.

    Raises ValueError for an entry of ``restrictions`` with an operator that PyTorch composes of other operators.
    """
    import torch

    model = find(name)
    for operator in model.operators:
        if not torch._C._dispatch_has_kernel(operator):
            known = torch._C._dispatch_get_all_op_names()
            overloads = sorted(each for each in known if each.startswith(f"{operator}."))
            hint = f" There are {', '.join(overloads)}." if overloads else did_you_mean(operator, known)
            raise ValueError(
                f"The device model {name} has the unknown operator {operator!r}.{hint} An operator is written with its "
                "overload, such as 'aten::add.Tensor', and PyTorch must know it when the model is chosen."
            )
    for each in model.restrictions:
        for operator in each["operators"]:
            schema = torch._C._get_schema(*(operator.split(".") if "." in operator else (operator, "")))
            known = [argument.name for argument in schema.arguments]
            for word in (each["argument"], *([each["when"]["argument"]] if "when" in each else ())):
                _check_word(word, known, f"argument of {operator}:", str(name))
            if _is_composed(operator):
                raise ValueError(
                    f"The device model {name} has restrictions of {operator!r}, which PyTorch composes of other "
                    "operators on this device. Refuse the operators that it calls, or name it in missing_operators."
                )
    return model


def _is_composed(operator: str) -> bool:
    """Whether the device runs PyTorch's composition of other operators, and has no kernel for ``operator``."""
    import torch

    has_kernel_for = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel_for(operator, "CompositeImplicitAutograd") and not has_kernel_for(operator, identity.dispatch_key)


def _read(path: str, name: str, readers: tuple[str, ...] = ()) -> Model:
    """The model of a file. ``readers`` are the files whose ``like`` led to this file."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file, object_pairs_hook=_without_repetitions)
    except (OSError, ValueError, RecursionError) as error:  # the last one: brackets within a thousand brackets
        raise ValueError(f"The device model {path} cannot be read: {error}") from None
    _check(data, path)
    model = Model(name, data.get("about", ""))
    parts = []
    for other in data.get("like", ()):
        part = _path_of(other, path)
        if part in (path, *readers):
            raise ValueError(f"The device model {path} is like itself: its `like` leads back to {part}.")
        parts.append(_read(part, other, (path, *readers)))
        model = _joined(model, parts[-1])
    with_rates = [part for part in parts if part.rates]
    rates = {**(with_rates[0].rates if len(with_rates) == 1 else {}), **data.get("rates", {})}
    _check_rates(rates, path)
    own = Model(
        name,
        data.get("about", ""),
        data.get("properties", {}),
        rates,
        data.get("tf32"),
        data.get("nondeterminism_checks"),
        data.get("only_operators"),
        tuple(data.get("absent_dtypes", ())),
        tuple(data.get("missing_operators", ())),
        tuple(data.get("restrictions", ())),
    )
    return _joined(own, model)


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of a JSON object. JSON allows a key twice, and Python would silently keep the second value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        words = [word for word, _ in pairs]
        raise ValueError(f"it has {next(word for word in words if words.count(word) > 1)!r} twice in one object")
    return found


def _path_of(name: str, path: str) -> str:
    """The file of a model that ``like`` names in the file ``path``: in the folder of ``path``, or in this package."""
    name = name.removesuffix(".json")
    for folder in (os.path.dirname(path), FOLDER):
        if os.path.exists(part := os.path.join(folder, f"{name}.json")):
            return part
    raise ValueError(f"The device model {path} is like the unknown model {name!r}.{did_you_mean(name, names())}")


def _check(data: object, path: str) -> None:
    """Raises ValueError for the first thing in the data of a file that a model cannot have."""
    if not isinstance(data, dict):
        raise ValueError(f"The device model {path} is not a JSON object.")
    for key in data:
        _check_word(key, _KEYS, "key", path)
    if not isinstance(data.get("about", ""), str):
        raise ValueError(f"The device model {path} has an `about` that is not a text.")
    if not _is_list(data.get("like", [])):
        raise ValueError(f'The device model {path} has a `like` that is not a list of names, such as ["cuda-a100"].')
    for kind in ("properties", "rates", *_RESTRICTIONS):
        shape = dict if kind in ("properties", "rates") else list
        if not isinstance(data.get(kind, shape()), shape):
            expected = "an object" if shape is dict else "a list"
            raise ValueError(f"The device model {path} has {kind} that are not {expected} of JSON.")
    for word, each in data.get("properties", {}).items():
        _check_word(word, PROPERTIES, "property", path)
        _check_entry("properties", each, f"the property {word!r}", path)
        _check_property(word, each["value"], path)
    for word, each in data.get("rates", {}).items():
        _check_word(word, RATES, "rate", path)
        _check_entry("rates", each, f"the rate {word!r}", path)
        _check_rate(word, each["value"], path)
    for kind in ("tf32", "nondeterminism_checks", "only_operators"):
        if kind in data:
            _check_entry(kind, data[kind], kind, path)
    for kind in ("tf32", "nondeterminism_checks"):
        if kind in data and not isinstance(data[kind]["value"], bool):
            raise ValueError(
                f"The device model {path} has {data[kind]['value']!r} as {kind}, which must be true or false."
            )
    if "only_operators" in data and "{operator}" not in data["only_operators"]["message"]:
        raise ValueError(f"The device model {path} has only_operators whose message does not contain {{operator}}.")
    for kind in _RESTRICTIONS:
        for each in data.get(kind, ()):
            _check_entry(kind, each, f"an entry of {kind}", path)
    for each in data.get("restrictions", ()):
        if "kernel" not in each and "message" not in each:
            raise ValueError(
                f'The device model {path} has an entry of restrictions with neither a "kernel" nor a "message".'
            )
        if "kernel" in each and ("message" in each or "error" in each):
            raise ValueError(
                f'The device model {path} has an entry of restrictions with a "kernel" and also a "message" or an '
                '"error": the kernel determines both.'
            )


def _check_property(word: str, value: object, path: str) -> None:
    least, most = RANGES.get(word, _ANY_NUMBER)
    if word == "name":
        valid = isinstance(value, str) and 0 < len(value.encode()) <= _LONGEST_NAME and "\0" not in value
        expected = f"a text of at most {_LONGEST_NAME} bytes"
    elif word in _FLAGS:
        valid, expected = isinstance(value, bool), "true or false"
    else:
        valid = type(value) is int and least <= value <= most
        expected = f"a whole number from {least} to {most}"
    if not valid:
        raise ValueError(f"The device model {path} has {value!r} as the property {word!r}, which must be {expected}.")


def _check_rate(word: str, value: object, path: str) -> None:
    is_time, is_share = RATES[word] == "s", not RATES[word]
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else -1
    if not (number > 0 or (is_time and number == 0)) or (is_share and number > 1):
        expected = "a share above 0, up to 1" if is_share else "a number of seconds" if is_time else "a number above 0"
        raise ValueError(f"The device model {path} has {value!r} as the rate {word!r}, which must be {expected}.")


def _check_rates(rates: dict[str, dict[str, Any]], path: str) -> None:
    """Raises ValueError if an estimate of time would lack a rate. A dtype without a rate has that of float32."""
    needed = [word for word in RATES if word == "flops_float32" or not word.startswith("flops_")]
    missing = [word for word in needed if word not in rates]
    if rates and missing:
        raise ValueError(f"The device model {path} has rates without {', '.join(missing)}.")


def _check_entry(kind: str, entry: object, what: str, path: str) -> None:
    source = entry.get("source") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(source, str) or not source.strip():
        raise ValueError(f'The device model {path} gives no source for {what}. It is written with a "source", a text.')
    needed, optional = _ENTRIES[kind]
    for word in entry:
        _check_word(word, (*needed, *optional, "source"), f"word in {what}:", path)
    for word in needed:
        if word not in entry:
            raise ValueError(f'The device model {path} has no "{word}" in {what}.')
    for word in ("operators", "dtypes"):
        if not _is_list(entry.get(word, [])):
            raise ValueError(f'The device model {path} has "{word}" in {what} that are not a list of texts.')
        if kind in _RESTRICTIONS and entry.get(word) == []:
            raise ValueError(f'The device model {path} has no {word} in {what}: the list "{word}" is empty.')
    for word in ("message", "kernel", "argument"):
        if not isinstance(entry.get(word, ""), str):
            raise ValueError(f'The device model {path} has a "{word}" in {what} that is not a text.')
    if (when := entry.get("when")) is not None and not (
        isinstance(when, dict)
        and set(when) == {"argument", "values"}
        and isinstance(when["argument"], str)
        and _is_list(when["values"])
        and when["values"]
    ):
        raise ValueError(
            f'The device model {path} has a "when" in {what} that is not written as '
            '{"argument": "reduce", "values": ["prod"]}.'
        )
    if "error" in entry:
        _check_word(entry["error"], ERRORS, f"error in {what}:", path)
    for dtype in (*entry.get("dtypes", ()), *([entry["dtype"]] if "dtype" in entry else ())):
        _check_word(dtype, DTYPES, f"dtype in {what}:", path)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _check_word(word: object, known: Iterable[str], what: str, path: str) -> None:
    known = tuple(known)
    if word not in known:
        hint = did_you_mean(str(word), known)
        raise ValueError(
            f"The device model {path} has the unknown {what} {word!r}.{hint} There are {', '.join(known)}."
        )


def _joined(first: Model, second: Model) -> Model:
    """The values of ``first``, and those that only ``second`` has. The lists in _RESTRICTIONS are joined.

    Two models that are like the same third model have its entries in common: the joined list has each of them once.
    """
    return Model(
        first.name,
        first.about,
        {**second.properties, **first.properties},
        first.rates,  # those of several accelerators do not mix
        first.tf32 or second.tf32,
        first.nondeterminism_checks or second.nondeterminism_checks,
        first.only_operators or second.only_operators,
        _without_equals(first.absent_dtypes + second.absent_dtypes),
        _without_equals(first.missing_operators + second.missing_operators),
        _without_equals(first.restrictions + second.restrictions),
    )


def _without_equals(entries: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    return tuple(entry for index, entry in enumerate(entries) if entry not in entries[:index])
