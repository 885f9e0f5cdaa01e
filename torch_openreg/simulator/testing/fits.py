"""``--openreg-fits=MODEL,...`` and the marker ``openreg_fits``: tests that must fit in the memory of accelerators.

Such a test runs in dry execution, once for each model, in a process of its own.
"""

from __future__ import annotations

import os

import pytest

from torch_openreg import openreg
from torch_openreg._words import size
from torch_openreg.openreg import _out_of_memory, dry  # type: ignore[attr-defined]
from torch_openreg.simulator import _models
from torch_openreg.simulator.check._own import is_own
from torch_openreg.simulator.testing.marker import Settings

OPTION = "--openreg-fits"
LIMIT = "1M"
LINES = 10  # how many lines that read assumed values a failure names


def models_of_option(text: str | None) -> tuple[str, ...]:
    """The models that an option names. Raises UsageError for an unknown model, or if this process runs dry itself."""
    if text is None:
        return ()
    if os.environ.get("OPENREG_DRY"):
        raise pytest.UsageError(
            f"{OPTION} starts dry execution in the process of each test. Unset OPENREG_DRY, which starts it in all."
        )
    return _checked(text.split(","), OPTION)


def environments_of(item: pytest.Item, settings: Settings, of_option: tuple[str, ...]) -> list[dict[str, str]]:
    """The environment variables of a test's process, for each model on which the test must fit.

    The models are those of the marker openreg_fits, or else that of the marker openreg with the option, or else those of
    the option. Without a model, the result is the environment of the settings alone. Raises UsageError for a marker
    without a model, and for an unknown model.
    """
    models = of_option and ((settings.model,) if settings.model else of_option)
    if marker := item.get_closest_marker("openreg_fits"):
        what = f"{item.nodeid}: the marker openreg_fits"
        if marker.kwargs or not marker.args:
            raise pytest.UsageError(f"{what} takes the names of device models, such as openreg_fits('cuda-t4').")
        models = _checked(list(marker.args), what)
    dry_settings = [settings.environment | {"OPENREG_MODEL": each, "OPENREG_DRY": LIMIT} for each in models]
    return dry_settings or [settings.environment]


def _checked(names: list[str], what: str) -> tuple[str, ...]:
    for name in names:
        try:
            _models.find(name)
        except (TypeError, ValueError) as error:
            raise pytest.UsageError(f"{what}: {error}") from None
    return tuple(names)


def is_asked_for() -> bool:
    """Whether the test of this process must fit. If so, looks for allocations that fail from now on."""
    if "OPENREG_DRY" not in os.environ:
        return False
    _out_of_memory.watch()
    return True


def judge(report: pytest.TestReport) -> None:
    """Makes the report of a part of a test a failure if an allocation failed, also if the test caught the error.

    A test that is expected to fail and did keeps its outcome. Any other failure names the lines that read assumed values.
    """
    failed = _out_of_memory.take_first()
    if hasattr(report, "wasxfail"):
        return
    if failed:
        device = failed["device"]
        text = (
            f"The test does not fit on {openreg.models.current()}: {failed['line']} asked for {size(failed['size'])}, but "
            f"{size(failed['free'])} of {size(failed['total'])} were free. The peak was "
            f"{size(openreg.max_memory_allocated(device))} allocated, {size(openreg.max_memory_reserved(device))} reserved."
        )
        report.outcome = "failed"
        report.longrepr = report.openreg_does_not_fit = text  # type: ignore[attr-defined]
    elif report.failed and (reads := [each for each in dry.assumed_reads() if is_own(each.line)]):
        lines = [f"{each.count} x {each.how}  {each.line}" for each in reads[:LINES]]
        title = "It ran in dry execution and read values that were not computed:"
        report.sections.append(("torch_openreg", "\n".join([title, *lines])))


def joined(of_models: list[list[pytest.TestReport]]) -> list[pytest.TestReport]:
    """The reports of a test from its reports for each model.

    They are those of the first model on which it does not fit, with the texts of all such models; or of the first model
    on which it fails otherwise; or of the last model.
    """
    texts = [
        [each.openreg_does_not_fit for each in reports if hasattr(each, "openreg_does_not_fit")]
        for reports in of_models
    ]
    for reports, own in zip(of_models, texts, strict=True):
        if own:
            (first, *_) = (each for each in reports if hasattr(each, "openreg_does_not_fit"))
            first.longrepr = "\n".join(text for several in texts for text in several)
            return reports
    return next((reports for reports in of_models if any(each.failed for each in reports)), of_models[-1])
