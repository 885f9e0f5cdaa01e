"""torch.compile on the type "cuda". By this name inductor makes decisions that are meant for kernels in Triton."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled import (
    COMPILES_STANDALONE,
    PACKAGES,
    PRINTED_BY_PACKAGES,
    RECORDS_EVENTS,
    assert_all_agree,
    output_of,
    reports,
    runner,
)
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = [AS_CUDA, pytest.mark.slow]


@pytest.fixture
def python(inductor_cache: Path, tmp_path: Path) -> Run:
    environment = {"TORCH_OPENREG_AS": "cuda", "TORCHINDUCTOR_CACHE_DIR": str(inductor_cache)}
    return runner(tmp_path / "program.py", "import torch\n\nDEVICE = 'cuda'\n", **environment)


NAMES = ["gpt2_block", "optimizer_step", "reductions", "scatter_index_add", "dropout", "scans"]
"""One program for each decision of inductor by the name "cuda". The first five are also compared with a compiled CPU run.

`make compiled` runs all programs.
"""


def test_programs_agree_with_eager_and_with_the_compiled_cpu_bit_for_bit(inductor_cache: Path) -> None:
    found = reports(inductor_cache, "--dynamic", "false", "--against-compiled-cpu", *NAMES, TORCH_OPENREG_AS="cuda")
    assert_all_agree(found, NAMES)
    assert [report["bit_for_bit"] for report in found if report["bit_for_bit"] is not None] == [True] * 5


def test_a_program_agrees_with_eager_with_dynamic_shapes(inductor_cache: Path) -> None:
    names = ["reductions"]
    assert_all_agree(reports(inductor_cache, "--dynamic", "true", *names, TORCH_OPENREG_AS="cuda"), names)


def test_programs_agree_with_eager_when_kernels_are_queued(inductor_cache: Path) -> None:
    assert_all_agree(
        reports(inductor_cache, "--dynamic", "false", "--mode", "chaos", *NAMES, TORCH_OPENREG_AS="cuda"), NAMES
    )


def test_an_event_is_recorded_after_the_kernels_that_the_program_wrote_before_it(python: Run) -> None:
    assert output_of(python(RECORDS_EVENTS, OPENREG_EXECUTION="chaos")).splitlines() == ["True"] * 3


def test_a_block_of_torch_cuda_stream_is_traced_in_one_graph(python: Run) -> None:
    code = """
    side = torch.cuda.Stream()

    def f(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x @ x
        torch.cuda.current_stream().wait_stream(side)
        return y + 1

    x = torch.rand(200, 200, device=DEVICE)
    compiled = torch.compile(f, fullgraph=True)
    print([torch.equal(compiled(x), f(x)) for _ in range(5)])
    """
    assert output_of(python(code, OPENREG_EXECUTION="chaos")).strip() == str([True] * 5)


def test_what_standalone_compile_compiles_is_saved_and_loaded(python: Run, tmp_path: Path) -> None:
    assert output_of(python(COMPILES_STANDALONE, ARTIFACT=str(tmp_path / "artifact"))) == "cuda:0"


def test_a_package_of_aot_inductor_runs_on_the_device(python: Run, tmp_path: Path) -> None:
    printed = output_of(python(PACKAGES, PACKAGE=str(tmp_path / "model.pt2")))
    assert printed == PRINTED_BY_PACKAGES.format(device="cuda")


def test_what_inductor_writes_in_triton_compiles_from_its_eager_implementation(python: Run) -> None:
    code = """
        from torch._higher_order_ops.associative_scan import associative_scan
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch.manual_seed(0)
        inputs = [torch.randn(1, 2, 128, 16, device=DEVICE, requires_grad=True) for _ in range(3)]
        slope = torch.rand(2, device=DEVICE, requires_grad=True)
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=DEVICE)

        def attend(attention):
            return attention(*inputs, score_mod=lambda score, b, h, i, j: score + slope[h] * (j - i), block_mask=mask)

        results = []
        for attention in (flex_attention, torch.compile(flex_attention)):
            forward = attend(attention)
            results.append([forward, *torch.autograd.grad(forward.square().sum(), [*inputs, slope])])
        for eager, compiled in zip(*results):
            torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)
        x = torch.randn(8, 3, device=DEVICE)
        torch.testing.assert_close(torch.compile(lambda x: associative_scan(torch.add, x, 0))(x), x.cumsum(0))
        print("done")
    """
    assert output_of(python(code)) == "done"


def test_settings_that_ask_for_kernels_of_triton_change_nothing(python: Run) -> None:
    code = """
        import torch._inductor.config as config

        a, b = torch.randn(256, 16, device=DEVICE), torch.randn(16, 256, device=DEVICE)
        for setting, compute in (
            ("combo_kernels", lambda: (a.sin(), b.cos())),
            ("b2b_gemm_pass", lambda: ((a @ b) @ a,)),
            ("align_random_eager", lambda: (torch.rand(4, device=DEVICE) * 2,)),
        ):
            results = []
            for value in (False, True):
                torch.compiler.reset()
                torch.manual_seed(0)
                with config.patch({setting: value}):
                    results.append(torch.compile(compute)())
            print(setting, all(map(torch.equal, *results)))
    """
    assert output_of(python(code)).splitlines() == [
        "combo_kernels True",
        "b2b_gemm_pass True",
        "align_random_eager True",
    ]
