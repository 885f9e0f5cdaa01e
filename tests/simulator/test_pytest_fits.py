"""pytest --openreg-fits: each test runs in dry execution, and fails if it does not fit on the models."""

from __future__ import annotations

import pytest
from inner_pytest import run_pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("as_a_user_has_it")

# 20 GB are more than a T4 and a V100 have, and less than an A100 has.
HEAD = """
import unittest, pytest, torch
D = torch.accelerator.current_accelerator()
def GB(count): return torch.empty(count * 10**9, dtype=torch.uint8, device=D)
"""


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + source)
    return run_pytest(pytester, *options)


TESTS = """
def test_fits(): (GB(7) + 1).sum()
def test_ends():
    held = GB(10)
    torch.empty(20 * 10**9, dtype=torch.uint8, device=D)
def test_catches_the_error():
    try: GB(20)
    except torch.OutOfMemoryError: pytest.skip("too large")
class TestCase(unittest.TestCase):
    def test_expects_the_error(self):
        with self.assertRaises(torch.OutOfMemoryError): GB(20)
@pytest.fixture
def batch(): return GB(20)
def test_fixture(batch): pass
@pytest.mark.xfail(raises=torch.OutOfMemoryError)
def test_is_known_not_to_fit(): GB(20)
@pytest.mark.openreg_fits("cuda-a100")
def test_has_a_model_of_its_own(): GB(20)
@pytest.mark.openreg(memory="30G")
def test_has_memory_of_its_own(): GB(20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("identity", ["openreg", "cuda"])
def test_a_test_that_does_not_fit_fails_with_one_sentence(pytester: pytest.Pytester, identity: str) -> None:
    result = run(pytester, TESTS, "--openreg-fits=cuda-t4", f"--openreg-as={identity}")
    result.assert_outcomes(passed=3, failed=3, errors=1, xfailed=1)
    file = pytester.path / "test_a_test_that_does_not_fit_fails_with_one_sentence.py"
    nothing = "The peak was 0 B allocated, 0 B reserved."
    for line in (
        f"The test does not fit on cuda-t4: {file}:8 in test_ends asked for 20.0 GB, but 5.4 GB of 15.8 GB were free. "
        "The peak was 10.0 GB allocated, 10.0 GB reserved.",
        f"The test does not fit on cuda-t4: {file}:3 in GB asked for 20.0 GB, but 15.4 GB of 15.8 GB were free. {nothing}",
    ):
        assert line in result.outlines, line
    assert "torch_openreg: each test runs in dry execution, and must fit on cuda-t4" in result.outlines


@pytest.mark.slow
def test_a_test_must_fit_on_each_model(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(): GB(20)", "--openreg-fits=cuda-a100,cuda-t4,cuda-v100")
    result.assert_outcomes(failed=1)
    sentences = [each for each in result.outlines if each.startswith("The test does not fit on ")]
    assert [each.split(":")[0] for each in sentences[:2]] == [
        "The test does not fit on cuda-t4",
        "The test does not fit on cuda-v100",
    ]


@pytest.mark.slow
def test_the_marker_needs_no_option_and_keeps_what_the_model_lacks(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.openreg_fits("cuda-t4", "cuda-v100")
def test_marked():
    x = torch.empty(1 << 20, dtype=torch.float8_e4m3fn, device=D).view(1024, 1024)
    torch._scaled_mm(x, x.t(), torch.ones((), device=D), torch.ones((), device=D))
def test_unmarked(): assert torch.ones(1 << 20, device=D).sum().item() == 1 << 20
"""
    result = run(pytester, source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E * torch._scaled_mm is only supported on CUDA devices with compute capability*"])


@pytest.mark.slow
def test_another_failure_names_the_lines_that_read_assumed_values(pytester: pytest.Pytester) -> None:
    source = """
def test_it():
    total = torch.ones(1 << 20, device=D).sum().item()
    assert total == 1 << 20
"""
    result = run(pytester, source, "--openreg-fits=cuda-t4")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["It ran in dry execution and read values that were not computed:", "1 x item()  */test_*.py:6 in test_it"]
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (
            ("--openreg-fits=cuda-a100,cuda-t5",),
            {},
            "--openreg-fits: There is no device model 'cuda-t5'. Did you mean 'cuda-t4'? The models are *cuda-h100,*",
        ),
        (("--openreg-fits=",), {}, "--openreg-fits: There is no device model ''.* The models are *"),
        (
            ("--openreg-fits=cuda-t4",),
            {"OPENREG_DRY": "1M"},
            "--openreg-fits starts dry execution in the process of each test. Unset OPENREG_DRY, which starts it in all.",
        ),
        ((), {"MARKER": "()"}, "*::test_it: the marker openreg_fits takes the names of device models, such as *"),
        ((), {"MARKER": "('t4')"}, "*::test_it: the marker openreg_fits: There is no device model 't4'.*"),
    ],
    ids=["unknown", "empty", "dry", "marker", "unknown marker"],
)
@pytest.mark.slow
def test_wrong_usage_is_refused(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    sentence: str,
) -> None:
    marker = f"@pytest.mark.openreg_fits{variables.pop('MARKER')}" if "MARKER" in variables else ""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = run(pytester, f"{marker}\ndef test_it(): pass", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])
