"""torch.openreg.fallback: which operators fall back is counted, and can be warned of or refused."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from comparison import DEVICE, KIND, MODULE_NAME, PRELUDE, assert_same
from torch._dispatch.python import enable_python_dispatcher

from torch_openreg import openreg

fallback = openreg.fallback

# Operators without a kernel of the device's own.
HISTC, BINCOUNT = "aten::histc", "aten::bincount"


@pytest.fixture(autouse=True)
def _the_default_policy() -> Iterator[None]:
    fallback.reset_counts()
    with fallback.set_policy("silent"):
        yield


def histc(device: str = DEVICE) -> torch.Tensor:
    return torch.histc(torch.tensor([1.0, 2, 1], device=device), bins=3, min=0, max=3)


def bincount() -> torch.Tensor:
    return torch.bincount(torch.tensor([1, 2, 1], device=DEVICE))


def refused(name: str) -> pytest.RaisesExc[NotImplementedError]:
    return pytest.raises(
        NotImplementedError,
        match="^"
        + re.escape(
            f"The operator '{name}' has no kernel of its own on the {KIND} device, and {MODULE_NAME}.fallback "
            f"refuses to run the CPU's in its place. To allow it, add '{name}' to the `allow` list of "
            f"{MODULE_NAME}.fallback.set_policy, or to TORCH_OPENREG_FALLBACK."
        )
        + "$",
    )


def warned(call: Callable[[], object]) -> list[str]:
    """The messages of the warnings that `call` gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(warning.category is UserWarning for warning in caught)
    return [str(warning.message).partition(" (Triggered")[0] for warning in caught]


def sentence(name: str) -> str:
    return (
        f"The operator '{name}' has no kernel of its own on the {KIND} device and falls back to the CPU's. "
        f"This warning comes once per operator; {MODULE_NAME}.fallback counts the calls."
    )


# ---- Counts --------------------------------------------------------------------------------------------------------


def test_calls_are_counted_by_operator_and_overload() -> None:
    histc()
    bincount()
    histc()
    assert fallback.counts() == {HISTC: 2, BINCOUNT: 1}
    assert list(fallback.counts()) == [HISTC, BINCOUNT], "the most called one first"
    torch.histc(torch.ones(3, device=DEVICE), 3, out=torch.empty(3, device=DEVICE))
    assert fallback.counts()["aten::histc.out"] == 1


def test_operators_with_a_kernel_of_their_own_are_not_counted() -> None:
    x = torch.ones(3, 3, device=DEVICE)
    (x @ x + x).sum().cpu()
    torch.histc(torch.ones(3), 3)
    assert fallback.counts() == {}


def test_a_composite_operator_is_counted_by_its_parts() -> None:
    torch.histogram(torch.ones(3, device=DEVICE), 3)
    assert list(fallback.counts()) == ["aten::histogram.bin_ct"]
    fallback.reset_counts()
    torch.kthvalue(torch.arange(3.0, device=DEVICE), 2)
    assert list(fallback.counts()) == ["aten::kthvalue.values"]


def test_a_backward_is_counted() -> None:
    x = torch.ones(1, 1, 4, 4, device=DEVICE, requires_grad=True)
    y = torch.nn.functional.grid_sample(x, torch.zeros(1, 2, 2, 2, device=DEVICE), align_corners=False)
    assert list(fallback.counts()) == ["aten::grid_sampler_2d"]
    fallback.reset_counts()
    y.sum().backward()
    assert list(fallback.counts()) == ["aten::grid_sampler_2d_backward"]


def test_tensors_of_another_layout_are_counted() -> None:
    x = torch.eye(3, device=DEVICE).to_sparse()
    fallback.reset_counts()
    torch.sparse.sum(x)
    assert fallback.counts()


def test_an_operator_of_somebody_else_is_counted() -> None:
    with torch.library._scoped_library("fallback_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CPU")
        torch.ops.fallback_test.twice(torch.ones(2, device=DEVICE))
        assert fallback.counts() == {"fallback_test::twice": 1}
        with fallback.set_policy("error"), refused("fallback_test::twice"):
            torch.ops.fallback_test.twice(torch.ones(2, device=DEVICE))


def test_counts_start_again() -> None:
    histc()
    fallback.reset_counts()
    assert fallback.counts() == {}
    histc()
    assert fallback.counts() == {HISTC: 1}


def test_no_call_of_any_thread_is_lost() -> None:
    x = torch.ones(3, device=DEVICE)

    def work() -> None:
        for _ in range(500):
            torch.histc(x, 3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):  # while the other threads count
        fallback.counts()
        fallback.set_policy("silent")
    for thread in threads:
        thread.join()
    assert fallback.counts() == {HISTC: 2000}


def test_the_table() -> None:
    assert fallback.table() == "No operator fell back."
    bincount()
    histc()
    histc()
    assert fallback.table() == "operator            calls\naten::histc             2\naten::bincount          1"


# ---- Policies ------------------------------------------------------------------------------------------------------


def test_the_default_is_silent() -> None:
    assert fallback.get_policy() == ("silent", ())
    assert warned(histc) == []


def test_warn_says_it_once_per_operator_and_the_result_is_right() -> None:
    fallback.set_policy("warn")
    assert warned(lambda: assert_same(histc(), histc("cpu"))) == [sentence(HISTC)]
    assert warned(histc) == []
    assert warned(bincount) == [sentence(BINCOUNT)]
    fallback.set_policy("warn")
    assert warned(histc) == [sentence(HISTC)], "due again"
    assert fallback.counts() == {HISTC: 3, BINCOUNT: 1}


def test_error_refuses_and_does_not_count() -> None:
    fallback.set_policy("error")
    with refused(HISTC):
        histc()
    with refused("aten::histc.out"):
        torch.histc(torch.ones(3, device=DEVICE), 3, out=torch.empty(3, device=DEVICE))
    assert fallback.counts() == {}
    x = torch.ones(3, 3, device=DEVICE)
    assert_same(x @ x + x, torch.full((3, 3), 4.0))
    assert_same(histc("cpu"), histc("cpu"), device="cpu")
    fallback.set_policy("silent")
    assert_same(histc(), histc("cpu"))


@pytest.mark.parametrize(
    "pattern", ["aten::histc", "histc", "aten::hist*", "*", "h?stc", "aten::*", "[gh]istc"]
)  # fmt: skip
def test_what_the_list_names_is_allowed(pattern: str) -> None:
    with fallback.set_policy("error", allow=["nothing", pattern]):
        assert fallback.get_policy() == ("error", ("nothing", pattern))
        histc()
    with fallback.set_policy("warn", allow=[pattern]):
        assert warned(histc) == []


def test_a_name_without_overload_allows_all_of_them_and_one_with_overload_only_that() -> None:
    x, out = torch.ones(3, device=DEVICE), torch.empty(3, device=DEVICE)
    for name in ("histc", "aten::histc", "histc*"):
        with fallback.set_policy("error", allow=[name]):
            torch.histc(x, 3, out=out)
    with fallback.set_policy("error", allow=["aten::histc.out"]):
        torch.histc(x, 3, out=out)
        with refused(HISTC):
            histc()


@pytest.mark.parametrize("pattern", ["hist", "openreg::histc", "histc.other", "aten::histc.out", ""])
def test_what_the_list_does_not_name_is_refused(pattern: str) -> None:
    with fallback.set_policy("error", allow=[pattern]), refused(HISTC):
        histc()


def test_a_block_ends_with_the_policy_that_it_found() -> None:
    fallback.set_policy("warn", allow=["bincount"])
    with pytest.raises(ZeroDivisionError), fallback.set_policy("error"):
        with fallback.set_policy("silent"):
            assert fallback.get_policy() == ("silent", ())
        assert fallback.get_policy() == ("error", ())
        raise ZeroDivisionError
    assert fallback.get_policy() == ("warn", ("bincount",))


def test_the_policy_holds_in_all_threads() -> None:
    caught: list[str] = []

    def work() -> None:
        try:
            histc()
        except NotImplementedError as error:
            caught.append(str(error))

    with fallback.set_policy("error"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(caught) == 1 and caught[0].startswith(f"The operator '{HISTC}' has no kernel of its own")


def test_an_unknown_policy_is_refused_and_changes_nothing() -> None:
    fallback.set_policy("warn")
    with pytest.raises(
        ValueError, match=r"^The fallback policy is one of 'silent', 'warn', 'error', but got 'loud'\.$"
    ):
        fallback.set_policy("loud")
    with pytest.raises(TypeError, match=r"^`allow` is a list of operators; for a single one: allow=\['histc'\]$"):
        fallback.set_policy("error", allow="histc")
    with pytest.raises(TypeError):
        fallback.set_policy("error", allow=[1])  # type: ignore[list-item]
    assert fallback.get_policy() == ("warn", ())


# ---- TORCH_OPENREG_FALLBACK ----------------------------------------------------------------------------------------

SHOW = PRELUDE + "print(*openreg.fallback.get_policy()); print(torch.histc(torch.ones(3, device=DEVICE), 3))"


@pytest.mark.slow
def test_the_environment_sets_the_policy(run_python: Callable[..., object]) -> None:
    for value, expected in (
        ("error,aten::histc,_foreach_*", "error ('aten::histc', '_foreach_*')"),
        ("error, aten::histc", "error ('aten::histc',)"),
        ("silent", "silent ()"),
    ):
        result = run_python(SHOW, TORCH_OPENREG_FALLBACK=value)
        assert (result.returncode, result.stderr, result.stdout.splitlines()[0]) == (0, "", expected)
    result = run_python(SHOW, TORCH_OPENREG_FALLBACK="error")
    assert result.returncode == 1 and "NotImplementedError: The operator 'aten::histc'" in result.stderr
    result = run_python(SHOW, TORCH_OPENREG_FALLBACK="warn")
    assert result.returncode == 0 and f"UserWarning: {sentence(HISTC)}" in result.stderr


SPARSE = """
import torch.distributed as dist

dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
sparse = torch.eye(2, device=torch.accelerator.current_accelerator()).to_sparse()
for collective in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0)):
    try:
        collective(sparse)
    except Exception as error:
        print(type(error).__name__, error)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_collective_of_a_sparse_tensor_is_refused(run_python: Callable[..., object]) -> None:
    """The CPU's kernel would give gloo copies of the values, and return before gloo has finished."""
    result = run_python(PRELUDE + SPARSE)
    reduced, sent = result.stdout.splitlines()
    assert reduced.startswith("NotImplementedError Could not run 'c10d::allreduce_' with arguments from the 'Sparse")
    assert reduced.endswith("' backend: the device's collectives take dense tensors only.")
    assert sent.startswith("NotImplementedError Could not run 'c10d::broadcast_' with arguments from the '")


def test_a_value_of_the_environment_that_makes_no_sense_is_said_at_the_first_use(
    run_python: Callable[..., object],
) -> None:
    result = run_python(PRELUDE + "torch.ones(1); print('alive'); openreg.synchronize()", TORCH_OPENREG_FALLBACK="loud")
    assert result.stdout == "alive\n"
    assert (
        "ValueError: TORCH_OPENREG_FALLBACK is 'loud'. Set it to silent (the default), warn or error, which operators "
        "to allow may follow (error,aten::sort.stable,_foreach_*), or unset it" in result.stderr
    )


def test_an_operator_falls_back_while_python_chooses_the_kernels() -> None:
    """As in torch.compile's fake tensors. The keys of a call then have PythonDispatcher, which is no device's."""
    x = torch.randn(4, 4)
    with enable_python_dispatcher():
        assert_same(torch.geqrf(x.to(DEVICE))[0], torch.geqrf(x)[0])
        assert_same(x.to(DEVICE).to_sparse() @ x.to(DEVICE), x.to_sparse() @ x)
