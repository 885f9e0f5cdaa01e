"""Writes docs/minimal-operators.md: `python -m tests.book.minimal`, or `make minimal`.

A row of the page's table is an operator, or the fallback. For each row, a process loads the backend without the kernels
of that row (filter.c) and tries out what the backend can still do (abilities.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import programs
from programs import Peer

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "minimal-operators.md"

# The operators in the table of PyTorch's notes on new accelerators.
PYTORCHS = (
    "empty.memory_format",
    "empty_strided",
    "as_strided",
    "resize_",
    "_reshape_alias",
    "_copy_from",
    "_copy_from_and_resize",
    "_local_scalar_dense",
    "set_.source_Tensor",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "view",
    "fallback",
)

# The rows that this project adds (csrc/aten/OpenRegMinimal.cpp).
ADDED = (
    "copy_",
    "set_",
    "unfold",
    "view_as_real",
    "view_as_complex",
    "view.dtype",
    "alias",
    "_efficientzerotensor",
    "_has_compatible_shallow_copy_type",
    "record_stream",
)

ROWS = PYTORCHS + ADDED

HEAD = """# The minimal set of operators

PyTorch's notes on new accelerators have a table of the operators that every backend must register first, with a
fallback for all others ([Operator Set](https://docs.pytorch.org/docs/stable/accelerator/operators.html)). This project
adds rows to that table. This page says what a backend with these rows can do, what is missing, and what breaks if one
row is left out.

For every row of the table below, a process loads this backend without the kernels of that row, and runs the programs in
`tests/book/minimal/abilities.py`. Each program checks its own results. `csrc/aten/OpenRegMinimal.cpp` registers all
rows except the fallback. `make minimal` writes this page, and `tests/book/test_minimal_operators.py` checks it. The
results are for PyTorch 2.13.

## PyTorch's table alone"""

ABILITY = "An ability is one program of `tests/book/minimal/abilities.py`."

OTHERS = "The others need registrations that are not part of this set:"

TABLE = """\
The fallback of this project runs the CPU's kernel in place, so it can replace many rows of the table. Therefore the
table has two columns for what breaks:

- "without it": what breaks if the row is left out of the whole set.
- "without it and without a fallback": the fallback is left out too. The column lists only what breaks in addition to
  what the missing fallback breaks.

If both columns say "nothing", PyTorch has another way today. `reshape` calls `view` and not `_reshape_alias`. `copy_`
and `_copy_from` can replace each other, because PyTorch's composite `copy_` calls `_copy_from`. Only PyTorch's own
fallback calls `_copy_from_and_resize`; that fallback copies the tensors to the CPU and back. These rows stay because
the other way is slower, or because a program may call the operator directly.

| row | in PyTorch's table | without it | without it and without a fallback |
|---|---|---|---|"""

FALLBACK = """Without a fallback, a backend with these rows can still do this:"""

WORKER = """
import os, sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
from tests.book.minimal.abilities import run

for line in sys.stdin:
    print(run(line.rstrip("\\n")), flush=True)
"""


class Backends:
    """A process that has imported PyTorch. For each set of rows it forks a child, which loads the backend."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "filter.so"
            source = Path(__file__).with_name("filter.c")
            programs.run("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", status=0)
            variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library)}
            self._peer = Peer(sys.executable, "-c", WORKER, stderr=subprocess.DEVNULL, **variables)
            self.inabilities(())  # after an answer the process has loaded the library, so its file may be deleted

    def inabilities(self, rows: Sequence[str]) -> dict[str, str]:
        """What a backend with only `rows` cannot do: ability -> the error, or "crash"."""
        return json.loads(self._peer.ask(",".join(rows)))

    def close(self) -> None:
        """Ends the process."""
        self._peer.close()


def wrapped(text: str) -> str:
    """An item of a list, in lines of at most 160 characters."""
    return textwrap.fill(text, 160, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def document(taken_out: Sequence[str] = ROWS) -> str:
    """Tries out sets of rows, and returns the text of the page. Its table has only the rows of ``taken_out``."""
    backends = Backends()
    kernels = [row for row in ROWS if row != "fallback"]
    pytorchs, all_rows = backends.inabilities(PYTORCHS), backends.inabilities(ROWS)
    no_fallback = backends.inabilities(kernels)
    tried = [row for row in taken_out if row != "fallback"]
    without_row = {row: backends.inabilities([other for other in ROWS if other != row]) for row in tried}
    alone = {row: backends.inabilities([other for other in kernels if other != row]) for row in tried}
    backends.close()

    from .abilities import ABILITIES

    def names(broken: dict[str, str], known: dict[str, str]) -> str:
        return "; ".join(f"{name} (crash)" if broken[name] == "crash" else name for name in broken if name not in known)

    count = len(ABILITIES)
    lines = [HEAD, "", f"{ABILITY} {count - len(pytorchs)} of the {count} work. These do not:", ""]
    lines += [wrapped(f"- {name}: {error}") for name, error in pytorchs.items()]
    lines += ["", "## The table and this project's additions", ""]
    lines += [f"{count - len(all_rows)} of the {count} abilities work. {OTHERS}", ""]
    lines += [wrapped(f"- {name}: {error}") for name, error in all_rows.items()]
    lines += ["", "## What breaks when one row is taken out", "", TABLE]
    for row in taken_out:
        if row == "fallback":
            broken = len(no_fallback) - len(all_rows)
            cells = [f"{broken} abilities: all that work with the whole set and are not in the list below", "-"]
        else:
            cells = [names(without_row[row], all_rows) or "nothing", names(alone[row], no_fallback) or "nothing"]
        lines.append(f"| `{row}` | {'added' if row in ADDED else 'yes'} | {' | '.join(cells)} |")
    lines += ["", FALLBACK, ""]
    lines += [f"- {name}" for name in ABILITIES if name not in no_fallback]
    return "\n".join([*lines, ""])


def main() -> None:
    """Writes the page."""
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
