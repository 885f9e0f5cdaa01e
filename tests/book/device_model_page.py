"""``python -m tests.book.device_model_page`` prints the page of the book about what CUDA refuses."""

from __future__ import annotations

import textwrap

import torch

from tests.simulator.device_models.__main__ import cells, missing
from tests.simulator.device_models.dispatch_macros import MACROS, rows
from tests.simulator.device_models.wider import computed


def page(only: dict[str, dict[str, list[str]]]) -> str:
    counts = {kind: sum(map(len, rows.values())) for kind, rows in only.items()}
    wider = computed()
    # The device computes nothing that CUDA refuses.
    assert [name for name, dtypes in wider.items() if not dtypes <= set(only["cuda"][name])] == []
    lines = [
        "# What CUDA refuses and the CPU does not",
        "",
        "`tests/book/device_model_page.py` writes this page from the tables of "
        f"PyTorch {torch.__version__.partition('+')[0]}. A cell is an operator with one dtype.",
        "",
        "| What | How many | What the tests see |",
        "|---|---|---|",
        f"| cells that only the CPU has | {counts['cpu']} | the models `cuda-*` refuse each of them |",
        f"| cells that only CUDA has | {counts['cuda']} | the device computes {sum(map(len, wider.values()))} of them |",
        *(
            f"| cells that a dispatch macro of CUDA {kind} | {len(list(rows(kind)))} | the models `cuda-*` {kind[:-1]} "
            "each of them |"
            for kind in ("accepts", "refuses")
        ),
        "",
        f"## Cells that only the CPU has: {counts['cpu']}",
        "",
        "From OpInfo, PyTorch's database of operators, with the compute capability pinned to 8.0.",
        "",
        "| operator of OpInfo | dtypes |",
        "|---|---|",
        *(f"| `{name}` | {', '.join(dtypes)} |" for name, dtypes in only["cpu"].items()),
        "",
        "## Operators without a kernel for CUDA",
        "",
        *textwrap.wrap(f"From native_functions.yaml: {', '.join(f'`{name}`' for name in missing('CUDA'))}.", 160),
        "",
        "## The dispatch macros of CUDA's sources",
        "",
        "Read by hand from the files in `aten/src/ATen/native/cuda`, and so independent of OpInfo.",
        "",
        "| file | name in the error's message | accepts | refuses |",
        "|---|---|---|---|",
        *(f"| {m.file} | `{m.kernel}` | {', '.join(m.accepts)} | {', '.join(m.refuses)} |" for m in MACROS),
        "",
        f"## Cells that only CUDA has: {counts['cuda']}",
        "",
        "The device's kernels are the CPU's. It computes the cells of the third column: most in a wider dtype, with a rounded",
        "result (`csrc/simulator/borrowed/routes/Wider.cpp`); Fourier transforms and attention under the name cuda only,",
        "because PyTorch does not call these operators on other devices. What is left: the nuclear norm of complex32, which",
        "PyTorch itself refuses on a GPU too.",
        "",
        "| operator of OpInfo | dtypes | computed |",
        "|---|---|---|",
        *(
            f"| `{name}` | {', '.join(dtypes)} | {', '.join(sorted(wider.get(name, ())))} |"
            for name, dtypes in only["cuda"].items()
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(cells("8.0")), end="")
