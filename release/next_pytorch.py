"""Says what changes for a backend from one PyTorch to the next: `make next`, and `make next PYTORCH=folder`.

    python release/next_pytorch.py                          # the supported releases, and the newest one of pip's index
    python release/next_pytorch.py --pytorch ../pytorch     # also a checkout, or an unpacked wheel

Writes the generated part of docs/next-pytorch.md. PyTorch's wheels are downloaded and unpacked into build/next. What
PyTorch's pull requests ask of a vendor is in next.toml. The sources are compiled, without code generation, with the
checkout or else with the newest release: on two processors this takes ten minutes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import tomllib
from compiles import compile_commands, one_by_one, refused, unpack_checkout
from interfaces import ROOT, Torch, Used, changes
from wheels import SUPPORTED, unpack_torch

BUILD = ROOT / "build" / "next"
PAGE = ROOT / "docs" / "next-pytorch.md"
START, END = "<!-- make next: start -->", "<!-- make next: end -->"
READ = re.compile(r"torch/(include/.*|.*\.pyi?)|torchgen/.*")
NOTES = tomllib.loads((ROOT / "release" / "next.toml").read_text())


def newest_release() -> str:
    """The newest PyTorch in pip's index."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"\d+\.\d+\.\d+", answer)[0]


def releases() -> dict[str, Path]:
    """The supported releases and the newest one: version -> folder of the unpacked wheel."""
    found = {minor: str(entry["release"]) for minor, entry in SUPPORTED.items()}
    newest = newest_release()
    found.setdefault(newest.rpartition(".")[0], newest)
    return {release: unpack_torch(release, BUILD, READ) for release in found.values()}


def link(entry: Mapping[str, object]) -> str:
    """The pull request of an entry of next.toml, or else its issue."""
    kind, number = ("pull", entry["pull"]) if "pull" in entry else ("issues", entry["issue"])
    return f"[pytorch#{number}](https://github.com/pytorch/pytorch/{kind}/{number})"


def note(name: str) -> str:
    """What next.toml says about an interface: ``Class.function``, an operator, or a name of Python."""
    for entry in NOTES["change"]:
        if any(re.fullmatch(pattern, name) for pattern in entry["interfaces"]):
            return f"{link(entry)}: {entry['vendor']}" if "pull" in entry else entry["vendor"]
    return ""


def shown(was: object, now: object) -> str:
    """A change in words."""
    if was is None or now is None:
        return "new" if was is None else "gone"
    if isinstance(was, frozenset) and isinstance(now, frozenset):
        before, after = ({text[text.index("(") :] for text in declarations} for declarations in (was, now))
        return f"takes `{'; '.join(sorted(after))}`" if before != after else "another result"
    return "other arguments" if "(" in str(now) else f"{was}, now {now}"


def rows(torches: Mapping[str, Torch], used: Used) -> Iterator[tuple[str, str, str, str, str]]:
    """Kind, interface, version, change, note."""
    for name, overridden in sorted(used.overrides.items()):
        for version, function, was, now in changes([(v, t.functions(name)) for v, t in torches.items()]):
            here = ", overridden here" if function in overridden else ""
            yield f"`{name}`", f"`{function}`", version, shown(was, now) + here, note(f"{name}.{function}")
    for version, name, was, now in changes(
        [(v, {name: t.schemas[name] for name in used.operators & t.schemas.keys()}) for v, t in torches.items()]
    ):
        yield "operators", f"`aten::{name}`", version, shown(was, now), note(f"aten::{name}")
    for version, name, was, now in changes(
        [(v, {name: s for name in used.names if (s := t.signature(name)) is not None}) for v, t in torches.items()]
    ):
        yield "Python", f"`{name}`", version, shown(was, now), note(name)


def generated(torches: Mapping[str, Torch], used: Used) -> str:
    """The generated part of the page."""
    versions = list(torches)
    lines = [
        f"Read from PyTorch {', '.join(versions)}. This backend derives from {len(used.overrides)} classes, registers "
        f"{len(used.operators)} operators by name,",
        f"includes {len(used.includes)} headers, and uses {len(used.names)} names of Python modules.",
    ]
    last = ""
    for kind, interface, version, change, text in rows(torches, used):
        if kind != last:
            lines += [
                "",
                f"### {kind}",
                "",
                "| Interface | Since | What changed | Pull request, and what a vendor does |",
            ]
            lines += ["|---|---|---|---|"]
            last = kind
        lines.append(f"| {interface} | {version} | {change} | {text} |")
    return "\n".join(lines)


def compiled(version: str, torch: Path) -> str:
    """What a compiler says about the sources with a PyTorch."""
    build = BUILD / f"cmake-{version}"
    steps = compile_commands(torch.resolve(), build)
    sources = sum(len(one_by_one(step)) for step in steps)
    # The sources of the name cuda are made from those of csrc.
    shorter = {f"{build}/torch_openreg/_cuda/csrc/renamed/": "csrc/", f"{torch.resolve()}/": "", f"{ROOT}/": ""}
    return verdict(version, sources, refused(steps), shorter)


def verdict(version: str, sources: int, errors: Mapping[tuple[str, str], list[str]], shorter: Mapping[str, str]) -> str:
    """The errors, as refused() returns them, as a table. ``shorter`` replaces the folders of this machine."""
    if not errors:
        return f"With PyTorch {version} all {sources} sources compile."
    count = sum(map(len, errors.values()))
    lines = [
        f"With PyTorch {version}, {count} of {sources} sources do not compile. The table has the first errors.",
        "",
    ]
    lines += ["| Place | What the compiler says | Sources |", "|---|---|---|"]
    for (place, text), refusing in errors.items():
        for folder, name in shorter.items():
            place, text = place.replace(folder, name), text.replace(folder, name)
        text = textwrap.shorten(text, 110, placeholder=" ...").replace("|", "\\|")
        lines.append(f"| `{place}` | {text} | {len(refusing)} |")
    return "\n".join(lines)


def announced() -> str:
    """What pull requests change that no release has."""
    lines = ["| Pull request | What changes | What a vendor does | Here |", "|---|---|---|---|"]
    for entry in NOTES["announced"]:
        lines.append(f"| {link(entry)} | {entry['what']} | {entry['vendor']} | {entry['here']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pytorch", type=Path, help="a checkout of PyTorch, or an unpacked wheel")
    options = parser.parse_args()
    folders = releases()
    if options.pytorch:
        name, newest = options.pytorch.resolve().name, list(folders.values())[-1]
        is_checkout = (options.pytorch / "aten").exists()
        folders[name] = (
            unpack_checkout(options.pytorch, newest, BUILD / f"torch-{name}") if is_checkout else options.pytorch
        )
    text = generated({version: Torch(folder) for version, folder in folders.items()}, Used())
    text += f"\n\n## What does not compile\n\n{compiled(*list(folders.items())[-1])}"
    page = re.sub(
        f"{START}.*{END}",
        lambda _: f"{START}\n{text}\n\n## In no release yet\n\n{announced()}\n{END}",
        PAGE.read_text(),
        flags=re.DOTALL,
    )
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
