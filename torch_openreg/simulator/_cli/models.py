"""``torch-openreg models``: lists the device models, shows one of them, or compares several."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from torch_openreg._words import columns
from torch_openreg.simulator import _models


def restrictions(model: _models.Model) -> list[tuple[str, str]]:
    """What a model refuses: pairs of a sentence and its source."""
    rows = []
    if model.only_operators:
        count = len(model.only_operators["operators"])
        rows.append((f"only {count} operators, and what PyTorch composes of them", model.only_operators["source"]))
    rows += [(f"no {each['dtype']}: {each['message']}", each["source"]) for each in model.absent_dtypes]
    for each in model.missing_operators:
        names = [name.removeprefix("aten::") for name in each["operators"]]
        rows.append((f"{len(names)} operators are missing: {', '.join(names)}", each["source"]))
    for each in model.restrictions:
        listed = ", ".join(name.removeprefix("aten::") for name in each["operators"])
        rows.append((f"{listed}: no {', '.join(each['dtypes'])}", each["source"]))
    return rows


def list_models() -> None:
    models = [_models.find(name) for name in _models.names()]
    width = max(len(model.name) for model in models)
    for model in models:
        print(f"{model.name:<{width}}  {model.about}")
    print("\nChoose one with OPENREG_MODEL=NAME, torch.openreg.device_model(NAME) or pytest --openreg-model=NAME.")


def show(model: _models.Model, sources: bool) -> None:
    print(f"{model.name}: {model.about}\n")
    for name, each in model.properties.items():
        print(f"  {name:<34}{_models.text(name, each['value'])}" + (f"\n      {each['source']}" if sources else ""))
    for name, each in model.rates.items():
        value = f"{each['value']:g} {_models.RATES[name]}".rstrip()
        print(f"  {name:<34}{value}" + (f"\n      {each['source']}" if sources else ""))
    if model.tf32 and model.rounds_to_tf32:
        words = "rounded to TensorFloat-32 in convolutions, and in matrix products where the program allows it"
        print(f"  {'float32':<34}{words}" + (f"\n      {model.tf32['source']}" if sources else ""))
    if model.nondeterminism_checks:
        words = "as on CUDA" if model.nondeterminism_checks["value"] else "none"
        print(
            f"  {'nondeterminism checks':<34}{words}"
            + (f"\n      {model.nondeterminism_checks['source']}" if sources else "")
        )
    for what, source in restrictions(model):
        print(f"  {what}" + (f"\n      {source}" if sources else ""))


def compare(models: Sequence[_models.Model]) -> None:
    """Prints a column for each model. A property has a line only if the models differ in it."""
    rows = [("", *(model.name for model in models))]
    for name in _models.PROPERTIES:
        values = [model.numbers.get(name) for model in models]
        if any(value != values[0] for value in values):
            rows.append((name, *(_models.text(name, value) for value in values)))
    rows.append(("TensorFloat-32", *("yes" if model.rounds_to_tf32 else "no" for model in models)))
    rows.append(
        (
            "nondeterminism checks",
            *("no" if m.nondeterminism_checks and not m.nondeterminism_checks["value"] else "yes" for m in models),
        )
    )
    rows.append(("dtypes that are absent", *(", ".join(e["dtype"] for e in m.absent_dtypes) or "-" for m in models)))
    missing = [len({name for each in model.missing_operators for name in each["operators"]}) for model in models]
    rows.append(("operators that are missing", *map(str, missing)))
    refused = [len({(n, t) for e in m.restrictions for n in e["operators"] for t in e["dtypes"]}) for m in models]
    rows.append(("pairs of operator and dtype that are refused", *map(str, refused)))
    print("\n".join(columns(rows)))


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 2 if a model does not exist or its file has an error."""
    parser = argparse.ArgumentParser(
        prog="torch-openreg models",
        description="Without NAME, lists the device models. With one NAME, shows it. With several, compares them.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model, or a file NAME.json")
    parser.add_argument("--sources", action="store_true", help="with one NAME: say where each value comes from")
    parser.add_argument("--json", action="store_true", help="print the models as JSON")
    options = parser.parse_args(argv)
    try:
        models = [_models.find(name) for name in options.names]
    except ValueError as error:
        print(f"torch-openreg models: {error}", file=sys.stderr)
        return 2
    if options.json:
        chosen = models or [_models.find(name) for name in _models.names()]
        print(json.dumps({model.name: vars(model) for model in chosen}, indent=2))
    elif not models:
        list_models()
    elif len(models) == 1:
        show(models[0], options.sources)
    else:
        compare(models)
    return 0
