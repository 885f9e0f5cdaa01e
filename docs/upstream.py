"""Prints the page UPSTREAM.md: ``python docs/upstream.py > UPSTREAM.md``."""

from __future__ import annotations

import textwrap

from torch_openreg._upstream import all_rows

INTRODUCTION = (
    "PyTorch has a registration for most of what a backend brings. For the rest, this package replaces whole "
    "functions, "
    "methods, classes and values of PyTorch 2.13 to 2.15, in the running program. Each is a row of a table "
    "(`_upstream.py`), and names the hook that PyTorch would need, so that the row could go. The command "
    "`python docs/upstream.py > UPSTREAM.md` writes this page."
)


def page() -> str:
    """The page UPSTREAM.md."""
    lines = [
        "# What this backend replaces in PyTorch",
        "",
        *textwrap.wrap(INTRODUCTION, 120),
    ]
    for folder, rows in all_rows().items():
        lines += ["", f"## {folder}: {len(rows)}"]
        for row in rows:
            name = row.name.replace("torch._C:", "").replace("torch.ops:", "")
            kind = "wrapped by" if row.wraps else "replaced by"
            title = f"**`{row.owner.replace(':', '.')}`, `{name}`**, {kind} `{row.ours.replace(':', '.')}`"
            lines += ["", *textwrap.wrap(title, 160, break_long_words=False, break_on_hyphens=False), ""]
            lines += textwrap.wrap(
                row.why, 120, initial_indent="- Why: ", subsequent_indent="  ", break_long_words=False
            )
            lines += textwrap.wrap(
                f"{row.hook}.", 120, initial_indent="- Hook: ", subsequent_indent="  ", break_long_words=False
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
