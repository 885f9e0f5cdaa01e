"""examples/ci/gitlab-ci.yml and Dockerfile: each command exists, and pytest accepts its options."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import programs
import pytest
import yaml

CI = Path(__file__).parents[2] / "examples" / "ci"
GITLAB = yaml.safe_load((CI / "gitlab-ci.yml").read_text())
DOCKERFILE = (CI / "Dockerfile").read_text()


def commands() -> list[str]:
    """Every command line of both files, with continued lines joined."""
    job = GITLAB["test"]
    joined = re.sub(r"\\\n\s*", "", DOCKERFILE)
    return [*job["before_script"], *job["script"], *re.findall(r"^RUN (.+)$", joined, re.M)]


def test_the_files_have_the_parts_that_their_kind_needs() -> None:
    assert set(GITLAB) == {"variables", "test"}
    assert set(GITLAB["test"]) == {"image", "timeout", "cache", "before_script", "script"}
    words = [line.split()[0] for line in re.sub(r"\\\n", "", DOCKERFILE).splitlines() if line and line[0] not in "# "]
    assert set(words) == {"FROM", "ARG", "RUN", "COPY", "ENV", "WORKDIR", "CMD"} and words[0] == "FROM"


@pytest.mark.parametrize("command", commands())
def test_each_command_is_one_of_the_shell(command: str) -> None:
    programs.run("sh", "-n", "-c", command, status=0)
    assert shlex.split(command)[0] in ("python", "pip", "ls")


def test_variables_are_set_where_they_are_used() -> None:
    docker = set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.M))
    for text, known in ((str(GITLAB["test"]), set(GITLAB["variables"])), (DOCKERFILE.replace("$PWD", ""), docker)):
        assert set(re.findall(r"\$(\w+)", text)) <= known


@pytest.mark.slow
def test_the_tests_are_run_with_options_that_exist(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    runs = [shlex.split(command)[1:] for command in GITLAB["test"]["script"]]
    runs.append(re.findall(r'"([^"]+)"', DOCKERFILE.splitlines()[-1])[1:])
    for run in runs:
        assert run[:2] == ["-m", "pytest"]
        programs.run(sys.executable, *run, cwd=tmp_path, status=0)
