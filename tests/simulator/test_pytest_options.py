"""The pytest plugin: options, fixtures and markers that change how a test runs, or add a reason to fail."""

from __future__ import annotations

import fnmatch
import re
import shlex
import sys
from pathlib import Path

import programs
import pytest
from inner_pytest import run_pytest
from programs import PYTEST, SUPPORT

from torch_openreg.simulator.testing.marker import settings_of

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("as_a_user_has_it")


HEAD = "import pytest, torch, unittest\nfrom torch_openreg import openreg\n"


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + source)
    return run_pytest(pytester, *options)


# ---- --openreg -------------------------------------------------------------------------------------------------------

REACHES = """
def test_reaches(): torch.ones(2, device="openreg")
def test_does_not(): torch.ones(2)
def test_knows(): assert openreg.is_initialized()
class TestCase(unittest.TestCase):
    def test_reaches(self): torch.ones(2, device="openreg")
@pytest.mark.skip
def test_skipped(): torch.ones(2, device="openreg")
def test_skips_itself():
    torch.ones(2, device="openreg")
    pytest.skip()
def test_parts(subtests):
    for part in range(3):
        with subtests.test(part=part): torch.ones(2)
"""


def test_it_counts_the_tests_that_reach_the_device(pytester: pytest.Pytester) -> None:
    result = run(pytester, REACHES, "--openreg")
    result.assert_outcomes(passed=5, skipped=2)
    result.stdout.fnmatch_lines(["torch_openreg: 3 of 6 tests allocated memory on the device"])


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "old driver"])
def test_without_a_device_the_other_tests_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    options = ["--openreg", "--openreg-leaks", "--openreg-execution=chaos"]
    if hidden:
        monkeypatch.setenv("OPENREG_VISIBLE_DEVICES", "")
    else:
        options.append("--openreg-faults=start=driver")
    source = """
def test_cpu(): assert not torch.accelerator.is_available()
def test_each(openreg_device): pass
def test_both(device): torch.ones(1, device=device)
"""
    result = run(pytester, source, *options)
    result.assert_outcomes(passed=2, skipped=1, failed=1)
    sentence = "no device is visible: OPENREG_VISIBLE_DEVICES" if hidden else "driver version is insufficient"
    result.stdout.fnmatch_lines([f"E  *{sentence}*"])


@pytest.mark.slow
def test_a_device_that_cannot_start_is_an_error_of_each_test_with_its_reason(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(): pass", "--openreg", "--openreg-memory=8MB")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ['E  *OPENREG_DEVICE_MEMORY="8MB" is not valid: expected a number of bytes per device*']
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--openreg-model=cuda-t5", "OPENREG_MODEL cannot be obeyed. There is no device model 'cuda-t5'. Did you mean"),
        ("--openreg-faults=maloc=oom", "OPENREG_FAULTS cannot be obeyed. The fault 'maloc=oom' has the unknown point"),
        ("--openreg-fallback=errr", "TORCH_OPENREG_FALLBACK is 'errr'. Set it to silent"),
        (
            "--openreg-sanitize=races",
            "OPENREG_SANITIZER is 'races'. Set it to race, init, memory, leak, graph (separated by",
        ),
    ],
)
def test_a_setting_that_cannot_be_obeyed_is_a_usage_error(
    pytester: pytest.Pytester, option: str, sentence: str
) -> None:
    result = run(pytester, "def test_it(): pass", "--openreg", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "INTERNALERROR" not in result.stderr.str()
    result.stderr.fnmatch_lines([f"ERROR: The options and markers of torch_openreg need its device. *{sentence}*"])


@pytest.mark.slow
def test_options_that_need_torch_say_so_if_it_is_broken(pytester: pytest.Pytester) -> None:
    pytester.mkpydir("torch").joinpath("__init__.py").write_text("raise ImportError('broken')")
    result = pytester.runpytest_subprocess("--openreg")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: The options and markers of torch_openreg need its device. broken"])


# ---- --openreg-chaos-runs --------------------------------------------------------------------------------------------

# Chaos delays each product, so the host reads too early even on a busy machine.
RACE = """
def test_reads_too_early():
    host = torch.empty(1 << 16, pin_memory=True)
    ones = torch.ones(1 << 16, device="openreg")
    for _ in range(40):
        ones = ones * 1
    host.copy_(ones, non_blocking=True)
    {wait}
    assert host.sum().item() == 1 << 16
"""


@pytest.mark.slow
def test_chaos_finds_a_pinned_buffer_that_is_read_too_early_and_says_how_to_repeat_it(
    pytester: pytest.Pytester,
) -> None:
    options = ("--openreg-execution=chaos", "--openreg-seed=3", "--openreg-chaos-runs=4")
    result = run(pytester, RACE.format(wait=""), *options)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"mode chaos, seed (\d+), run \d of 4"])
    command = next(line for line in result.outlines if line.startswith("repeat: "))
    again = run_pytest(pytester, *shlex.split(command)[4:])
    again.assert_outcomes(failed=1)
    run(pytester, RACE.format(wait="torch.accelerator.synchronize()"), *options).assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_command_repeats_the_test_from_the_same_folder_with_the_other_arguments(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--kind', default='cpu')")
    pytester.makeini("[pytest]")
    folder = pytester.mkdir("inner")
    pytester.path.joinpath("inner", "test_kind.py").write_text(
        "def test_kind(request): assert request.config.option.kind == 'cpu'\n"
    )
    given = ("test_kind.py", "--kind=gpu", "--openreg-execution", "chaos", "--openreg-seed=3", "-n", "0")
    result = programs.run(sys.executable, "-m", "pytest", *given, cwd=folder)
    command = next(line for line in result.stdout.splitlines() if line.startswith("repeat: "))
    assert command == "repeat: python -m pytest " + " ".join(
        ["test_kind.py::test_kind", "--openreg-execution=chaos", "--openreg-seed=3", "--kind=gpu", "-n", "0"]
    )


@pytest.mark.slow
def test_each_run_has_new_fixtures_and_its_own_seed(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
from torch_openreg import _C
seeds, made = [], []
@pytest.fixture
def thing():
    made.append(1)
    yield len(made)
    made.append("gone")
def test_it(thing): seeds.append(_C._get_execution_mode()); assert thing == 2 * len(seeds) - 1
class TestCase(unittest.TestCase):
    def test_method(self): seeds.append(_C._get_execution_mode())
def test_all(): assert seeds == [("chaos", 7), ("chaos", 8), ("chaos", 9)] * 2
""",
        "--openreg-execution=random:7",
        "--openreg-chaos-runs=3",
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["torch_openreg: * is simulated (*), each test with 3 seeds"])


@pytest.mark.slow
def test_the_header_names_the_seed(pytester: pytest.Pytester) -> None:
    result = run_pytest(pytester, "--openreg-execution=chaos")
    result.stdout.fnmatch_lines(["torch_openreg: the device * is simulated (OPENREG_EXECUTION=chaos), seed 0"])


@pytest.mark.slow
def test_an_empty_seed_is_no_seed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENREG_CHAOS_SEED", "")
    result = run(pytester, "def test_it(): assert False", "--openreg-execution=chaos")
    header = "torch_openreg: * is simulated (OPENREG_EXECUTION=chaos), seed 0"
    result.stdout.fnmatch_lines([header, "mode chaos, seed 0"])


@pytest.mark.parametrize("option", ["--openreg", "--openreg-execution=chaos"])
def test_a_seed_that_is_no_number_is_a_usage_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("OPENREG_CHAOS_SEED", "abc")
    result = run(pytester, "def test_it(): pass", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "INTERNALERROR" not in result.stderr.str()
    expected = "expected a number from 0 to 18446744073709551615"
    result.stderr.fnmatch_lines([f"ERROR: OPENREG_CHAOS_SEED='abc' is not valid: {expected}"])


def test_a_schedule_that_does_not_exist_is_a_usage_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "is not valid: expected inline, async, chaos, early, late or random:SEED"
    result = run(pytester, "def test_it(): pass", "--openreg-execution=random:0")
    result.stderr.fnmatch_lines([f"*--openreg-execution: 'random:0' {expected}"])
    monkeypatch.setenv("OPENREG_EXECUTION", "random:x")
    result = run(pytester, "def test_it(): pass", "--openreg")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "INTERNALERROR" not in result.stderr.str()
    result.stderr.fnmatch_lines([f"ERROR: OPENREG_EXECUTION='random:x' {expected}"])


@pytest.mark.slow
def test_the_variable_of_the_mode_does_what_the_option_does(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREG_EXECUTION", "chaos")
    monkeypatch.setenv("OPENREG_CHAOS_SEED", "3")
    source = """
from torch_openreg import _C
def test_first():
    torch.ones(1, device="openreg")
    openreg.execution_mode("inline")
def test_seed():
    assert _C._get_execution_mode() == ("chaos", 3)
    raise ValueError
"""
    result = run(pytester, source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "torch_openreg: * is simulated (OPENREG_EXECUTION=chaos OPENREG_CHAOS_SEED=3)",
            "*ValueError*",
            "mode chaos, seed 3",
            "repeat: python -m pytest *::test_seed --openreg-execution=chaos --openreg-seed=3",
        ]
    )
    run(pytester, source, "--openreg-execution=inline").assert_outcomes(passed=1, failed=1)  # the option wins
    run(pytester, RACE.format(wait=""), "--openreg-chaos-runs=4").assert_outcomes(failed=1)


ORDER = f"""
import sys
from pathlib import Path
sys.path.append({SUPPORT!r})
from openreg_work import Gate
def order():  # a number that depends on the order in which the kernels of eight streams run
    number = torch.ones((), device="openreg")
    streams = [torch.Stream(device="openreg") for _ in range(8)]
    torch.accelerator.synchronize()
    with Gate(torch.accelerator.current_stream().native_handle):  # all kernels are queued before the first one runs
        for index, stream in enumerate(streams):
            stream.wait_stream(torch.accelerator.current_stream())
            with stream: number.mul_(2).add_(index)
    torch.accelerator.synchronize()
    return number.item()
def test_first():
    with torch.Stream(device="openreg"): assert torch.randn(3, 3, device="openreg").cpu().isfinite().all()
@pytest.mark.parametrize("n", range(2))
def test_order(n):
    with Path(__file__).with_name("orders").open("a") as file: print(n, order(), file=file)
"""


@pytest.mark.slow
def test_selecting_tests_does_not_change_their_order_of_execution_in_chaos(pytester: pytest.Pytester) -> None:
    def orders(*options: str) -> dict[str, str]:
        (pytester.path / "orders").unlink(missing_ok=True)
        run(pytester, ORDER, "--openreg-execution=chaos", *options)
        return dict(line.split() for line in (pytester.path / "orders").read_text().splitlines())

    whole = orders()
    assert whole.keys() == {"0", "1"} and whole["0"] == whole["1"]
    assert orders("-k", "order and 1") == {"1": whole["1"]}
    assert any(orders("-k", "order and 1", f"--openreg-seed={seed}")["1"] != whole["1"] for seed in (1, 2))


@pytest.mark.slow
def test_runs_without_chaos_are_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run_pytest(pytester, "--openreg-chaos-runs=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --openreg-chaos-runs needs --openreg-execution=chaos, late or random:SEED."])


# ---- --openreg-no-sync -----------------------------------------------------------------------------------------------

WAITS = """
@pytest.mark.openreg(no_sync=True)
def test_explicit():
    torch.accelerator.synchronize()  # an explicit wait is allowed, as with torch.cuda.set_sync_debug_mode
@pytest.mark.openreg(no_sync=True)
def test_step():
    loss = torch.ones(2, device="openreg").sum()
    print(loss.item())
@pytest.mark.openreg(no_sync=True)
def test_repaired_step():
    loss = torch.ones(2, device="openreg").sum()
    loss.detach()
def test_unmarked():
    torch.ones(2, device="openreg").sum().item()
"""


@pytest.mark.slow
def test_a_marked_test_that_waits_fails_with_the_line(pytester: pytest.Pytester) -> None:
    result = run(pytester, WAITS, "--openreg-no-sync")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines([">       print(loss.item())", "*called a synchronizing OpenReg operation"])
    run(pytester, WAITS).assert_outcomes(passed=4)


# ---- --openreg-leaks -------------------------------------------------------------------------------------------------

LEAKS = """
kept = []
@pytest.fixture(scope="module")
def weights(): return torch.ones(1000, device="openreg")
@pytest.fixture
def batch(): return torch.ones(1000, device="openreg")
def test_clean(weights, batch): (weights + batch).sum()
def test_leaks(weights):
    kept.append(weights * 2)
def test_cycle():
    cycle = [torch.ones(1000, device="openreg")]
    cycle.append(cycle)
def test_pinned():
    kept.append(torch.empty(1000, pin_memory=True))
def test_pinned_in_flight():
    torch.empty(1000, pin_memory=True).copy_(torch.ones(1000, device="openreg"), non_blocking=True)
def test_stream():
    torch.accelerator.set_stream(torch.Stream(device="openreg"))
def test_fails():
    kept.append(torch.ones(1000, device="openreg"))
    assert False
"""


@pytest.mark.slow
def test_what_is_not_given_back_fails_the_test_with_the_line(pytester: pytest.Pytester) -> None:
    result = run(pytester, LEAKS, "--openreg-leaks", "--openreg-execution=chaos")
    result.assert_outcomes(passed=6, failed=1, errors=3)
    result.stdout.fnmatch_lines(
        [
            "test_leaks leaves something behind.",
            "openreg:0: 4,000 bytes, allocated at *.py:11 in test_leaks",
            "test_pinned leaves something behind.",
            "pinned memory: 4,000 bytes, allocated at *.py:16 in test_pinned",
            "test_stream leaves something behind.",
            "the current device and streams are *",
        ]
    )


# ---- --openreg-sanitize ----------------------------------------------------------------------------------------------

KEEPS = """
x = torch.ones(64, device="openreg")
@pytest.mark.skip
def test_it(): pass
"""
RACES = """
@pytest.fixture
def batch():
    yield
    x, side = torch.ones(64, device="openreg"), torch.Stream(device="openreg")
    side.wait_stream(torch.accelerator.current_stream())
    with side: kept.append(x * 2)
    del x
kept = []
def test_it(batch): pass
"""


@pytest.mark.slow
def test_the_line_of_a_leak_is_found_in_a_project_in_a_folder_called_torch(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("torch")
    source = 'import torch\nkept = []\ndef test_leaks(): kept.append(torch.ones(1000, device="openreg"))\n'
    folder.joinpath("test_kept.py").write_text(source)
    result = programs.run(sys.executable, "-m", "pytest", "--openreg-leaks", cwd=folder)
    assert f"openreg:0: 4,000 bytes, allocated at {folder}/test_kept.py:3 in test_leaks" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-v", "--collect-only"])
def test_what_a_module_keeps_is_no_leak_of_a_test(pytester: pytest.Pytester, option: str) -> None:
    result = run(pytester, KEEPS, "--openreg-sanitize=leak", option)
    assert result.ret == pytest.ExitCode.OK and "OPENREG_SANITIZER: " not in result.stderr.str()


@pytest.mark.slow
def test_what_the_sanitizer_finds_beside_the_tests_is_in_the_summary(pytester: pytest.Pytester) -> None:
    result = run(pytester, RACES, "--openreg-sanitize=race,leak")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["OPENREG_SANITIZER: race: *is freed while*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


KEEPS_UNTIL_TEARDOWN = """
class TestUnit(unittest.TestCase):
    def setUp(self): self.x = torch.ones(4, device="openreg")
    def test_sum(self): self.assertEqual(self.x.sum().item(), 4)
@pytest.fixture
def results(): return []
def test_argument(results): results.append(torch.ones(4, device="openreg"))
"""


@pytest.mark.slow
def test_a_leak_is_what_is_left_when_the_test_case_and_the_arguments_of_a_test_have_gone(
    pytester: pytest.Pytester,
) -> None:
    leaks = "kept = []\ndef test_leaks(): kept.append(torch.ones(4, device='openreg'))\n"
    fails = "def test_fails(): x = torch.ones(4, device='openreg'); 0 / 0\n"
    result = run(pytester, KEEPS_UNTIL_TEARDOWN + leaks + fails, "--openreg-sanitize=leak")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*Error: leak: 16 bytes of device memory in 1 blocks are still allocated*"])
    result.stdout.fnmatch_lines(["ERROR *::test_leaks*"])


# ---- fixtures --------------------------------------------------------------------------------------------------------


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_each_device(openreg_device): assert torch.ones(1, device=openreg_device).device == openreg_device
def test_both(device): assert torch.ones(1, device=device).device.type == device.type
def test_two(two_devices):
    first, second = two_devices
    assert first != second and torch.ones(1, device=first).to(second).device == second
def test_memory(openreg_memory):
    openreg_memory("2M")
    with pytest.raises(torch.OutOfMemoryError): torch.empty(4 << 20, dtype=torch.uint8, device="openreg")
def test_no_limit_is_left(): torch.empty(4 << 20, dtype=torch.uint8, device="openreg")
def test_bad_limit(openreg_memory):
    with pytest.raises(ValueError, match="neither a number of bytes"): openreg_memory("much")
def test_faults(openreg_faults):
    openreg_faults("malloc:1=oom")
    with pytest.raises(torch.OutOfMemoryError): torch.ones(1, device="openreg")
""",
        "--openreg-device-count=3",
        "-v",
    )
    result.assert_outcomes(passed=10)
    names = ("[device0]", "[device1]", "[device2]", "[cpu]", "[openreg]")
    result.stdout.fnmatch_lines([f"*{name.replace('[', '[[]')} PASSED*" for name in names])


@pytest.mark.slow
def test_two_devices_are_skipped_where_there_is_one(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_two(two_devices): pass", "--openreg-device-count=1", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*two_devices: 1 simulated device is visible*"])


@pytest.mark.slow
def test_a_projects_own_fixture_called_device_wins(pytester: pytest.Pytester) -> None:
    source = """
@pytest.fixture
def device(): return "mine"
def test_it(device): assert device == "mine"
@pytest.mark.parametrize("device", ["a", "b"])
def test_parameter(device): assert device in "ab"
"""
    run(pytester, source).assert_outcomes(passed=3)


# ---- markers ---------------------------------------------------------------------------------------------------------

MARKERS = """
import os
@pytest.mark.openreg(execution="async")
def test_execution(): assert openreg.get_execution_mode() == "async"
def test_mode_is_back(): assert openreg.get_execution_mode() == "inline"
@pytest.mark.openreg(faults="malloc:1=oom")
def test_faults():
    with pytest.raises(torch.OutOfMemoryError): torch.ones(1, device="openreg")
@pytest.mark.openreg(memory="8M")
def test_memory():
    assert openreg.get_device_properties().total_memory == 8 << 20
    assert os.getppid() == here
@pytest.mark.openreg(device_count=3)
def test_device_count():
    assert openreg.device_count() == 3 and torch.ones(1, device="openreg:2").get_device() == 2
    assert os.getppid() == here
@pytest.mark.openreg(device_count=3, model="cuda-t4")
def test_device_count_wins_over_the_model():
    assert openreg.get_device_name(2) == "Tesla T4" and openreg.device_count() == 3
@pytest.mark.openreg(model="cuda-t4")
class TestModel(unittest.TestCase):
    def test_name(self): assert openreg.get_device_name() == "Tesla T4" and openreg.device_count() == 1
    @pytest.mark.openreg(memory="1G")
    def test_memory_wins(self):
        assert openreg.get_device_name() == "Tesla T4"
        assert openreg.get_device_properties().total_memory == 1 << 30
def test_here():
    assert os.getpid() == here and openreg.get_device_properties().total_memory == 16 << 30
here = os.getpid()
"""


@pytest.mark.slow
def test_the_marker_sets_up_one_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, MARKERS, "--openreg")
    # A fork server imports the module once, and forks a child for each test with a device of its own.
    result.assert_outcomes(passed=9)


@pytest.mark.slow
def test_a_value_of_the_marker_that_cannot_be_is_a_usage_error(pytester: pytest.Pytester) -> None:
    memory = "a number of bytes from 1M to 16384G, or a text with a suffix K, M or G, such as '64M'"
    wrong = [
        *((f"device_count={count}", "a whole number from 1 to 64") for count in ("0", "65", "True", "'2'", "2.0")),
        *((f"memory={size}", memory) for size in ("'1X'", "1.5", "'1K'", "'16385G'", "True")),
        *((f"no_sync={value}", "True or False") for value in ("'yes'", "1")),
    ]
    source = "\n".join(f"@pytest.mark.openreg({value})\ndef test_{i}(): pass" for i, (value, _) in enumerate(wrong))
    messages = [f"the marker openreg has {value}. It takes {expected}." for value, expected in wrong]
    for item, message in zip(pytester.getitems(f"import pytest\n{source}"), messages, strict=True):
        with pytest.raises(pytest.UsageError, match=f"::{item.name}: {re.escape(message)}$"):
            settings_of(item)
    result = run(pytester, source)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *::test_0: {messages[0]}"])


@pytest.mark.slow
def test_openreg_device_is_each_device_of_the_marker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import json
from pathlib import Path
big = json.dumps({"properties": {"device_count": {"value": 4, "source": "this test"}}})
Path(__file__).with_name("big.json").write_text(big)
used = []
@pytest.mark.openreg(device_count=3)
def test_count(openreg_device): torch.ones(1, device=openreg_device)
@pytest.mark.openreg(model=str(Path(__file__).with_name("big.json")))
def test_model(openreg_device): torch.ones(1, device=openreg_device)
@pytest.mark.openreg(device_count=1)
def test_one(openreg_device): torch.ones(1, device=openreg_device)
def test_unmarked(openreg_device): torch.ones(1, device=openreg_device)
"""
    monkeypatch.setenv("OPENREG_DEVICE_COUNT", "")  # as if it were not set
    result = run(pytester, source, "-rs")
    result.assert_outcomes(passed=3 + 4 + 1 + 2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: there is no device 1, because the test's marker sets device_count=1"])
    result = run(pytester, source, "--openreg-device-count=2")  # wins over the model, and not over the marker's number
    result.assert_outcomes(passed=3 + 2 + 1 + 2, skipped=1)


OWN_PROCESSES = """
import logging, os, signal, time, warnings
class OwnWarning(Warning): pass
def test_before(tmp_path):
    logging.getLogger().warning("logged before")
    tmp_path.joinpath("file").touch()
@pytest.mark.timeout(1)
@pytest.mark.openreg(device_count=3)
def test_slow(): time.sleep(3600)
@pytest.mark.openreg(memory="8M")
class TestOwn:
    def test_fails(self):
        print("said before")
        logging.getLogger().warning("logged in a process of its own")
        assert openreg.get_device_properties().total_memory == 1
    def test_skips(self): pytest.skip("a reason")
    def test_dies(self): os.kill(os.getpid(), signal.SIGKILL)
    def test_does_not_see_the_others(self):
        print("said by a test that passes")
        assert not openreg.is_initialized()
    def test_warns(self): warnings.warn("said by a test", OwnWarning)
    @pytest.mark.openreg(faults="malloc:9=oom")
    def test_fault(self): pass
    def test_sends(self, record_property): record_property("f", lambda: 1)
    @pytest.mark.parametrize("n", range(3))
    def test_folder(self, tmp_path, n):
        base = tmp_path.parent
        assert base.parent.joinpath("test_before0", "file").exists()
        tmp_path.joinpath("file").touch()
        assert len(list(base.glob("test_folder*_0/file"))) == n + 1
@pytest.mark.openreg(model="cuda-t5")
def test_unknown_model(): pass
def test_after(): logging.getLogger().warning("logged after")
"""


@pytest.fixture(scope="module")
def own_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pytest.LineMatcher]:
    """The folder of a run of OWN_PROCESSES, and what pytest said."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "test_own.py").write_text(HEAD + OWN_PROCESSES)
    options = ("-v", f"--log-file={folder / 'log'}", f"--basetemp={folder / 'base'}")
    command = (sys.executable, "-m", "pytest", *options)
    result = programs.run(*command, cwd=folder, status=1, errors="", clean=True, PYTEST_ADDOPTS=None)
    return folder, pytest.LineMatcher(result.stdout.splitlines())


Own = tuple[Path, pytest.LineMatcher]


@pytest.mark.slow
def test_a_test_in_its_own_process_reports_as_usual(own_processes: Own) -> None:
    _, said = own_processes
    outcomes = {
        name: outcome
        for line in said.lines
        for name, outcome in re.findall(r"^test_own\.py::(?:TestOwn::)?(\S+) ([A-Z]+)\b", line)
    }
    passed = ["test_before", "test_does_not_see_the_others", "test_warns", "test_fault", "test_after"]
    passed += [f"test_folder[{n}]" for n in range(3)]
    failed = ["test_fails", "test_dies", "test_sends", "test_unknown_model"]
    slow = outcomes.pop("test_slow")
    assert outcomes == {**dict.fromkeys(passed, "PASSED"), **dict.fromkeys(failed, "FAILED"), "test_skips": "SKIPPED"}
    said.fnmatch_lines(["*assert 8388608 == 1*", "said before"])
    said.fnmatch_lines(["The test's process ended with SIGKILL."])
    said.fnmatch_lines(["The report of the test cannot be sent to pytest's process: *pickle*<lambda>*"])
    said.fnmatch_lines(["*There is no device model 'cuda-t5'. Did you mean 'cuda-t4'?*"])
    said.no_fnmatch_line("*said by a test that passes*")
    # On a busy machine the time is over in the setup already, which makes an error of the failure.
    assert slow in ("FAILED", "ERROR")
    said.re_match_lines([r"(FAILED|ERROR) .*::test_slow - Failed: Timeout \(>1\.0s\) from pytest-timeout\."])


@pytest.mark.slow
def test_the_log_file_is_that_of_the_users_pytest(own_processes: Own) -> None:
    folder, said = own_processes
    said.fnmatch_lines(["*logged in a process of its own*"])
    assert [line.rpartition(" ")[2] for line in (folder / "log").read_text().splitlines()] == ["before", "after"]


@pytest.mark.slow
def test_the_warnings_of_a_test_in_its_own_process_are_in_the_summary(own_processes: Own) -> None:
    _, said = own_processes
    said.fnmatch_lines(
        [
            "test_own.py::TestOwn::test_warns",
            "*/test_own.py:*: OwnWarning: said by a test",
            "test_own.py::TestOwn::test_fault",
            "*/test_own.py:*: FaultWarning: The fault 'malloc:9=oom' never fired: there were 0 calls of its kind.",
        ]
    )


@pytest.mark.slow
def test_a_test_in_its_own_process_has_a_folder_in_the_same_temporary_folder(own_processes: Own) -> None:
    base = own_processes[0] / "base"
    assert sorted(str(each.relative_to(base)) for each in base.rglob("file") if "current" not in str(each)) == [
        *(f"own_process/test_folder_{n}_0/file" for n in range(3)),
        "test_before0/file",
    ]


PARTS = """
{mark}
def test_function(subtests):
    for part in range(3):
        with subtests.test(part=part): assert part != 1
{mark}
class TestCase(unittest.TestCase):
    def test_method(self):
        for part in range(3):
            with self.subTest(part=part): self.assertNotEqual(part, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ("", ()),
        ("", ("--openreg-execution=chaos", "--openreg-chaos-runs=3")),
        ("@pytest.mark.openreg(memory='64M')", ("--openreg-execution=chaos", "--openreg-chaos-runs=3")),
    ],
    ids=["plain", "runs", "runs in own processes"],
)
def test_a_subtest_that_fails_is_reported_once(pytester: pytest.Pytester, mark: str, options: tuple[str, ...]) -> None:
    result = run(pytester, PARTS.format(mark=mark), *options)
    # A report from another process has the number of the subtest as a text, '1', as with xdist. So quotes are removed.
    assert [re.sub(r"'|\S+\.py::| - .*", "", line) for line in result.outlines if re.match("(SUB)?FAILED", line)] == [
        "SUBFAILED(part=1) test_function",
        "FAILED test_function",
        "SUBFAILED(part=1) TestCase::test_method",
    ]


# ---- --openreg-faults

NEVER = "OPENREG_FAULTS: the fault 'malloc:9=oom' never fired: there were 4 calls of its kind{}."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "options", "where"),
    [
        ("", (), [""]),
        ("", ("-n", "2"), ["", *(f" in 2 processes, at most {most} in one" for most in (2, 3))]),
        ("@pytest.mark.openreg(memory='8M')", ("-n", "1"), [" in 4 processes, at most 1 in one"]),
    ],
    ids=["plain", "xdist", "own processes of a worker"],
)
def test_a_fault_fires_in_any_process_of_the_run_or_is_named_once(
    pytester: pytest.Pytester, mark: str, options: tuple[str, ...], where: list[str]
) -> None:
    source = f"""
{mark}
@pytest.mark.parametrize("n", range(4))
def test_it(n):
    if n == 2:
        with pytest.raises(torch.AcceleratorError): torch.ones(1, device="openreg").cpu()
    else:
        torch.ones(1, device="openreg")
"""
    result = run(pytester, source, "--openreg-faults=malloc:9=oom;copy:1=illegal", *options)
    result.assert_outcomes(passed=4)
    said = result.stdout.str() + result.stderr.str()
    assert said.count("never fired") == 1 and any(NEVER.format(each) in said for each in where), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "options"),
    [("@pytest.mark.openreg(memory='8M')", ()), ("", ("-n", "1", "--max-worker-restart=0"))],
    ids=["own process", "worker of xdist"],
)
def test_a_fault_that_ended_a_process_may_have_fired_there(
    pytester: pytest.Pytester, mark: str, options: tuple[str, ...]
) -> None:
    source = f"{mark}\ndef test_it(): torch.ones(1, device='openreg')"
    result = run(pytester, source, "--openreg-faults=malloc:1=kill", *options)
    result.assert_outcomes(failed=1)
    sentence = "the fault 'malloc:1=kill' never fired in the processes that ended normally: there were 0 calls"
    result.stdout.fnmatch_lines([f"OPENREG_FAULTS: {sentence} of its kind."])


@pytest.mark.slow
def test_a_device_that_started_in_collection_is_an_error_with_its_reason(pytester: pytest.Pytester) -> None:
    result = run(
        pytester, "x = torch.ones(1, device='openreg')\n@pytest.mark.openreg(memory='8M')\ndef test_it(): pass"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The device was started while the tests were collected*"])


@pytest.mark.slow
def test_the_model_of_a_marker_wins_over_the_option(pytester: pytest.Pytester) -> None:
    source = """
def name_and_float64():
    try: torch.ones(1, dtype=torch.float64, device="openreg")
    except TypeError: return openreg.models.current(), False
    return openreg.models.current(), True
@pytest.mark.openreg(model="cuda-v100")
def test_cuda(openreg_device): assert name_and_float64() == ("cuda-v100", True)
@pytest.mark.openreg(memory="1G")
def test_option(): assert name_and_float64() == ("mps-like", False)
"""
    run(pytester, source, "--openreg-model=mps-like").assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_test_in_its_own_process_is_heard_with_s(pytester: pytest.Pytester) -> None:
    source = """
import os, sys
@pytest.mark.openreg(memory="8M")
@pytest.mark.parametrize("n", range(2))
def test_it(n):
    print(f"printed {n}")
    os.write(2, b"written\\n")
"""
    result = run(pytester, source, "-s", "-q")
    result.assert_outcomes(passed=2)
    assert [line for line in result.outlines if "printed" in line] == ["printed 0", ".printed 1"]
    assert result.errlines.count("written") == 2


@pytest.mark.slow
def test_devices_that_the_model_of_a_marker_does_not_have_are_skipped(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.openreg(model="cuda-t4")
def test_model(openreg_device): torch.ones(1, device=openreg_device)
@pytest.mark.openreg(device_count=1)
def test_count(openreg_device): torch.ones(1, device=openreg_device)
"""
    result = run(pytester, source, "--openreg-model=strict", "-rs")
    result.assert_outcomes(passed=2, skipped=2)
    for setting in ("the model 'cuda-t4'", "the test's marker"):
        sentence = f"there is no device 1, because {setting} sets device_count=1"
        result.stdout.fnmatch_lines([f"SKIPPED*: {sentence}"])


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "@pytest.mark.openreg(memory='8M')"], ids=["unmarked", "marked"])
def test_pytest_exit_ends_the_run(pytester: pytest.Pytester, mark: str) -> None:
    result = run(pytester, f"{mark}\ndef test_it(): pytest.exit('enough', 7)\ndef test_later(): pass")
    assert result.ret == 7
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["*!!! _pytest.outcomes.Exit: enough !!!*"])


def test_an_unknown_word_gives_the_closest_one(pytester: pytest.Pytester) -> None:
    result = run(pytester, "@pytest.mark.openreg(modell='cuda-t4')\ndef test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *the marker openreg does not take 'modell'. Did you mean 'model'?*"])


@pytest.mark.slow
def test_an_unknown_word_fails_the_test_in_a_worker_of_xdist_whose_findings_are_in_the_summary(
    pytester: pytest.Pytester,
) -> None:
    source = f"{RACES}@pytest.mark.openreg('cuda-t4')\ndef test_word(): pass\n"
    result = run(pytester, source, "--openreg-sanitize=race,leak", "-n", "1")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*::test_word: the marker openreg does not take 'cuda-t4'. It takes model=, memory=,*"]
    )
    result.stdout.fnmatch_lines(["OPENREG_SANITIZER: race: *is freed while*"])


@pytest.mark.slow
def test_a_model_may_be_an_option(pytester: pytest.Pytester) -> None:
    source = "def test_it(): assert openreg.get_device_name() == 'Tesla V100-SXM2-16GB'"
    result = run(pytester, source, "--openreg-model=cuda-v100")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["torch_openreg: * is simulated (OPENREG_MODEL=cuda-v100)"])


@pytest.mark.slow
def test_a_setting_holds_with_its_option_and_not_without(pytester: pytest.Pytester) -> None:
    source = """
def test_memory(): assert openreg.get_device_properties().total_memory == 8 << 20
def test_poison(): assert torch.empty(4, device="openreg").cpu().isnan().all()
def test_fallback():
    with pytest.raises(NotImplementedError): torch.ones(4, device="openreg").unique()
"""
    options = ("--openreg-memory=8M", "--openreg-poison=1", "--openreg-fallback=error")
    run(pytester, source, *options).assert_outcomes(passed=3)
    run(pytester, source).assert_outcomes(failed=3)


# ---- unittest, PyTorch's own framework, xdist ------------------------------------------------------------------------

KINDS = {
    "function": """
@pytest.mark.openreg(no_sync=True)
def test_waits(): torch.ones(2, device="openreg").sum().item()
def test_leaks(): kept.append(torch.ones(1000, device="openreg"))
def test_chaos(): assert openreg.get_execution_mode() == "chaos"
@pytest.mark.openreg(faults="malloc:1=oom")
def test_fault(): torch.ones(2, device="openreg")
@pytest.mark.openreg(model="cuda-t4", memory="8M")
def test_model(): assert is_small_t4()
""",
    "unittest": """
class TestIt(unittest.TestCase):
    @pytest.mark.openreg(no_sync=True)
    def test_waits(self): torch.ones(2, device="openreg").sum().item()
    def test_leaks(self): kept.append(torch.ones(1000, device="openreg"))
    def test_chaos(self): self.assertEqual(openreg.get_execution_mode(), "chaos")
    @pytest.mark.openreg(faults="malloc:1=oom")
    def test_fault(self): torch.ones(2, device="openreg")
    @pytest.mark.openreg(model="cuda-t4", memory="8M")
    def test_model(self): self.assertTrue(is_small_t4())
""",
    "device_types": """
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase
class TestIt(TestCase):
    @pytest.mark.openreg(no_sync=True)
    def test_waits(self, device): torch.ones(2, device=device).sum().item()
    def test_leaks(self, device): kept.append(torch.ones(1000, device=device))
    def test_chaos(self, device): self.assertEqual(openreg.get_execution_mode(), "chaos")
    @pytest.mark.openreg(faults="malloc:1=oom")
    def test_fault(self, device): torch.ones(2, device=device)
    @pytest.mark.openreg(model="cuda-t4", memory="8M")
    def test_model(self, device): self.assertTrue(is_small_t4())
instantiate_device_type_tests(TestIt, globals(), only_for=("openreg",))
""",
}
EVERY_OPTION = (
    "--openreg",
    "--openreg-no-sync",
    "--openreg-leaks",
    "--openreg-execution=chaos",
    "--openreg-chaos-runs=2",
)
HELPERS = """
kept = []
def is_small_t4():
    properties = openreg.get_device_properties()
    return (properties.name, properties.total_memory) == ("Tesla T4", 8 << 20)
"""


@pytest.mark.slow
def test_every_option_and_the_marker_hold_for_each_kind_of_test_in_a_worker_of_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**{f"test_{kind}": HEAD + HELPERS + source for kind, source in KINDS.items()})
    result = run_pytest(pytester, *EVERY_OPTION, "-n", "1")
    result.assert_outcomes(passed=9, failed=6, errors=3)  # a test that leaks passes, and its teardown is an error
    for line in (
        "E *called a synchronizing OpenReg operation*",
        "test_leaks* leaves something behind.",
        "E *OpenReg out of memory. Tried to allocate 8 bytes.*",
        "mode chaos, seed *, run * of 2",
        "repeat: python -m pytest * --openreg-execution=chaos --openreg-seed=* --openreg-leaks* -n 1",
    ):
        assert len(fnmatch.filter(result.outlines, line)) >= len(KINDS), line
    result.stdout.fnmatch_lines(["torch_openreg: 6 of 15 tests allocated memory on the device"])
    result.stdout.fnmatch_lines_random(
        [f"FAILED test_{kind}.py*{test}*" for kind in KINDS for test in ("test_waits", "test_fault")]
    )


# ---- planted bugs, each found by one option --------------------------------------------------------------------------

CHECKPOINT = """
import os
def save(state, path):
    {save}
def test_checkpoint(tmp_path):
    weights = [torch.ones(10, device="openreg"), torch.zeros(10, device="openreg")]
    save(weights, tmp_path / "model.pt")
    try: save(weights, tmp_path / "model.pt")
    except RuntimeError: pass  # the next run would begin with the previous checkpoint
    assert len(torch.load(tmp_path / "model.pt", map_location="cpu")) == 2
"""
HALF = """with open(path, "wb") as file:
        torch.save([tensor.cpu() for tensor in state], file)"""
WHOLE = """with open(f"{path}.new", "wb") as file:
        torch.save([tensor.cpu() for tensor in state], file)
    os.replace(f"{path}.new", path)"""

TRAINING = """
def train(batches):
    net = torch.nn.Linear(64, 1).to("openreg")
    def step(batch):
        net.zero_grad()
        net(batch.to("openreg")).square().mean().backward()
        for parameter in net.parameters(): parameter.data -= 0.1 * parameter.grad
    for batch in batches:
        {step}
    return net
def test_training():
    batches = torch.randn(3, 4096, 64)
    net = train(batches).cpu()
    assert net(batches[0]).isfinite().all()
"""
UNHANDLED = "step(batch)"
HANDLED = """try: step(batch)
        except torch.OutOfMemoryError:
            for half in batch.chunk(2): step(half)"""

LOADER = """
def test_loader():
    host = torch.empty(1 << 16, pin_memory=True)
    batches = []
    for value in range(64):  # in the mode chaos, about half of the copies start late
        host.fill_(value)
        batches.append(host.to("openreg", non_blocking=True))
        {wait}
    assert [batch[-1].item() for batch in batches] == list(range(64))
"""
EARLY = "pass"
LATER = "torch.accelerator.synchronize()  # the buffer may change only after this call"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "bug", "repaired", "option"),
    [
        (TRAINING, UNHANDLED, HANDLED, "--openreg-faults=malloc:>1000K=oom"),  # a batch has 1 MiB
        (CHECKPOINT, HALF, WHOLE, "--openreg-faults=copy:4+=lost"),  # from the second copy of the second checkpoint on
        (LOADER, EARLY, LATER, "--openreg-execution=chaos"),
    ],
    ids=["unhandled out of memory", "half a checkpoint", "pinned buffer reused too early"],
)
def test_a_planted_bug_is_found_by_one_option(
    pytester: pytest.Pytester, source: str, bug: str, repaired: str, option: str
) -> None:
    (word,) = [word for word in ("{save}", "{step}", "{wait}") if word in source]
    run(pytester, source.replace(word, bug)).assert_outcomes(passed=1)
    run(pytester, source.replace(word, bug), option).assert_outcomes(failed=1)
    run(pytester, source.replace(word, repaired), option).assert_outcomes(passed=1)


# ---- the sanitizer


def test_an_option_enables_the_sanitizer(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import torch\n"
        "def test_bug():\n    torch.empty(4, device='openreg').add_(1)\n"
        "def test_repaired():\n    torch.zeros(4, device='openreg').add_(1)\n"
    )
    result = programs.run(*PYTEST, "--openreg-sanitize=race,init", tmp_path, cwd=tmp_path)
    assert "1 failed, 1 passed" in result.stdout, result.stdout
    assert "init: aten::add_.Tensor reads 16 bytes" in result.stdout
