"""What a run has shown: findings and notes. A finding needs evidence that the run itself gives."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ._plan import Run
from ._processes import Result

# Every kind of finding, and what it means.
KINDS = {
    "error": "the program fails",
    "race": "two accesses that nothing orders",
    "init": "a read of memory that nobody has written",
    "memory": "an access outside of a tensor's memory",
    "leak": "memory that nobody frees",
    "graph": "a replay of a graph does not see what the program has changed",
    "schedule": "the result depends on the order in which the device works",
    "hang": "the program does not end",
    "crash": "a signal ends the program",
    "recovery": "the program handles a failure, and its handling fails",
    "hint": "a call has no effect on this device, and a warning says so",
    "swallowed": "a failure changes the results, and nobody is told",
    "wrong": "the program goes on after a failure, with wrong values",
    "model": "another accelerator refuses what the program does",
}
# Errors that a mistake in a handler leads to, and that nobody raises on purpose in place of the device's failure.
_MISTAKES = re.compile(
    r"(TypeError|AttributeError|NameError|UnboundLocalError|IndexError|KeyError|ZeroDivisionError|AssertionError"
    r"|StopIteration)\b"
    r"|RuntimeError: .*(on the same device|must match the size|cannot be multiplied|through the graph a second time"
    r"|does not require grad|by an inplace operation)"
)
# A file that was written in part, if nothing else tells of the failure: a process that ends closes its pipes.
_UNREADABLE = re.compile(r"(EOFError|[\w.]*UnpicklingError|[\w.]*JSONDecodeError|RuntimeError: PytorchStreamReader)\b")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?', re.M)
# What ends the traceback of a failure whose handler fails. PyTorch words the failure of an allocation itself.
_HANDLED = re.compile(r"(injected by|OutOfMemoryError).*^During handling of the above exception", re.M | re.S)
_PYTEST_FRAME = re.compile(r"^([^\s:]+\.py):(\d+): \w", re.M)
# The parts of a printed line that are compared. A time of the day is one part, and two equal durations are chance.
_TOKEN = re.compile(r"\d+(?::\d\d)+[.,\d]*|[-+]?\d[\w.+-]*|[^\W\d]+|\S")
# torch.distributed begins each line of a rank's traceback so.
_RANK = re.compile(r"^(\[rank\d+\]: )Traceback", re.M)
# How torchrun and torch.multiprocessing.spawn() tell that a signal has ended a rank. torchrun then ends the others.
_RANK_SIGNAL = re.compile(
    r"^\s*rank\s*: (?P<rank>\d+) .*\n\s*exitcode\s*: -(?!15 )(?P<number>\d+) \(pid"
    r"|ProcessExitedException: process (?P<process>\d+) terminated with signal (?P<name>SIG\w+)",
    re.M,
)
# How torchrun tells of each rank that has failed.
_FAILED_RANK = re.compile(r"^\s*rank\s*: (\d+) .*\n\s*exitcode\s*: -?\d+ \(pid", re.M)
# The warning of torch_openreg.openreg.amp.
_HINT = re.compile(r"^(.+\.py):(\d+): UserWarning: (.+ custom_fwd\(device_type=.+ casts nothing\..+)$", re.M)
_DURATION = re.compile(r"\b\d+(\.\d+)?(e[-+]?\d+)? ?([mun\u00b5]?s|sec|secs|seconds?|minutes?)\b")
_SAYS = re.compile(
    r"injected by|out of memory|OutOfMemory|\boom\b|retry|again|recover|fail|warn|error|skip|smaller|half|halv|instead|"
    r"fall|split|parts|chunk|cannot|could not|offload",
    re.I,
)
# A program that says this may go on with other numbers.
_SMALLER = re.compile(
    r"batch[ _-]?size|batch(es)?( of| to|:|=)? ?\d|micro-?batch|smaller|half|halv|reduc|fewer|\bless\b|lower|skip", re.I
)
_NAMED = re.compile(r"injected by|out of memory\. Tried to allocate")  # the message of the failure itself
_NOT_A_NUMBER = re.compile(r"\b(nan|inf)\b", re.I)
_DECIMAL = re.compile(r"[-+]?(\d+)(?:\.(\d*))?(?:e([-+]?\d+))?")


def without_numbers(message: str) -> str:
    """A message by which two findings of one kind are the same: numbers differ from run to run."""
    return re.sub(r"\d+", "N", message)


def _is_rounding(one: str, other: str) -> bool:
    """Whether two printed floating-point numbers differ only as two orders of the same additions do."""
    parts = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if not (parts[0] and parts[1]) or "." not in one + other:
        return False
    unit = max(10.0 ** (int(part[3] or 0) - len(part[2] or "")) for part in parts if part)  # of the last digit
    size = max(abs(float(one)), abs(float(other)))
    return abs(float(one) - float(other)) <= max(1e-4 * size, min(1.01 * unit, 0.01 * size))


class Line(NamedTuple):
    file: str
    line: int


@dataclass
class Finding:
    """One row of the report. ``sure`` says how often the run showed it, ``repeat`` is the command that repeats it."""

    kind: str
    file: str
    line: int
    message: str
    repeat: str = ""
    sure: str = "once (1 of 1 run)"
    note: bool = False  # worth reading, and no finding
    runs: list[Run] = field(default_factory=list)

    def within(self, folder: Path) -> Finding:
        """The finding with its file relative to the folder, if the file is in it."""
        self.file = self.file.removeprefix(str(folder) + "/")
        return self

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.kind, self.file, self.line, without_numbers(self.message)


class Difference(NamedTuple):
    """``line``: the number of the line of the output, from 0; -1 if there is none.

    ``is_rounding``: no number differs by more than the order of additions explains.
    """

    text: str
    line: int = -1
    is_rounding: bool = False


@dataclass
class Reference:
    """The first run, and what differs between the first two runs and is not compared."""

    first: Result
    second: Result
    what: str  # of --compare: all, output, files, none
    hook: Callable[[Result, Result], object] | None = None
    masked_tokens: set[tuple[int, int]] = field(default_factory=set)
    masked_files: set[str] = field(default_factory=set)
    compares_output: bool = True

    def __post_init__(self) -> None:
        self.compares_output = self.what in ("all", "output")
        first, second = self._tokens(self.first), self._tokens(self.second)
        if [len(line) for line in first] != [len(line) for line in second]:
            self.compares_output = False
        else:
            self.masked_tokens = {
                (i, j)
                for i, (one, other) in enumerate(zip(first, second, strict=True))
                for j in range(len(one))
                if one[j] != other[j]
            }
        names = {*self.first.files, *self.second.files}
        self.masked_files = {name for name in names if self.first.files.get(name) != self.second.files.get(name)}

    @classmethod
    def _tokens(cls, result: Result) -> list[list[str]]:
        return [cls._parts(line) for line in result.stdout.splitlines()]

    @staticmethod
    def _parts(line: str) -> list[str]:
        return _TOKEN.findall(_DURATION.sub("TIME", line))

    def not_compared(self) -> list[str]:
        """What differs between two plain runs, in words."""
        found = [f"the file {name}" for name in sorted(self.masked_files)]
        if not self.compares_output and self.what in ("all", "output"):
            found.append("the printed output, which has other lines in each run")
        lines = sorted({line for line, _ in self.masked_tokens})
        if lines:
            found.append(f"parts of {len(lines)} printed lines (the first is line {lines[0] + 1})")
        return found

    def is_part(self, result: Result, announced: Collection[str]) -> bool:
        """Whether a run has printed and written a part of what the first run has, and nothing else."""
        names = {*result.files} - self.masked_files
        if self.hook is not None or not self.compares_output:
            return False
        lines = iter(enumerate(self._tokens(self.first)))

        def comes_next(printed: list[str]) -> bool:
            def is_same(number: int, line: list[str]) -> bool:
                pairs = enumerate(zip(line, printed, strict=False))
                return len(line) == len(printed) and all(
                    one == other for i, (one, other) in pairs if (number, i) not in self.masked_tokens
                )

            return any(is_same(number, line) for number, line in lines)

        return all(self.first.files.get(name) == result.files[name] for name in names) and all(
            comes_next(self._parts(line)) for line in result.stdout.splitlines() if line not in announced
        )

    def in_any_order(self, result: Result) -> Difference | None:
        """As difference(), for a run whose processes may print in another order: the first line that is new."""
        found = self.difference(result)
        if found is None or found.line < 0:  # of a file, or what a hook says
            return found
        left = [*enumerate(self._tokens(self.first))]
        for text in result.stdout.splitlines():
            printed = self._parts(text)
            for place, (number, line) in enumerate(left):
                parts = enumerate(zip(line, printed, strict=False))
                is_same = all(one == other for i, (one, other) in parts if (number, i) not in self.masked_tokens)
                if is_same and len(line) == len(printed):
                    del left[place]
                    break
            else:
                return Difference(f"it prints {_short(text)}, which it does not print otherwise")
        return self._difference_of_files(result)

    def _difference_of_files(self, result: Result) -> Difference | None:
        names = ({*self.first.files, *result.files}) - self.masked_files
        for name in sorted(names if self.what in ("all", "files") else ()):
            if self.first.files.get(name) != result.files.get(name):
                is_there = "has other bytes" if name in result.files else "is missing"
                return Difference(f"the file {name}, which it writes, {is_there}")
        return None

    def difference(self, result: Result, announced: Collection[str] = ()) -> Difference | None:
        """The first difference between a run and the first run; one that is no rounding, if there is any.

        ``announced``: lines with which a program says that it handles a failure. They are no results.
        """
        rounding: Difference | None = None
        if self.hook is not None:
            said = self.hook(self.first, result)
            return Difference(str(said)) if said else None
        if self.compares_output:
            printed = [line for line in result.stdout.splitlines() if line not in announced]
            first, other = self._tokens(self.first), [self._parts(line) for line in printed]
            lines = self.first.stdout.splitlines()
            for i, (one, two) in enumerate(zip(first, other, strict=False)):
                parts = [(one[j], two[j]) for j in range(min(len(one), len(two))) if (i, j) not in self.masked_tokens]
                unequal = [pair for pair in parts if pair[0] != pair[1]]
                if unequal or len(one) != len(two):
                    text = f"it prints {_short(printed[i])}, and otherwise {_short(lines[i])}"
                    if len(one) != len(two) or not all(_is_rounding(*pair) for pair in unequal):
                        return Difference(text, i)
                    rounding = rounding or Difference(text, i, is_rounding=True)
            if len(first) != len(other):
                return Difference(f"it prints {len(other)} lines, and otherwise {len(first)}", len(first) - 1)
        if rounding:  # then the files differ too
            return rounding
        return self._difference_of_files(result)


def _short(text: str) -> str:
    return repr(text if len(text) < 60 else text[:57] + "...")


def _tracebacks(stderr: str) -> list[str]:
    """The tracebacks of the program, or of the rank that failed first. That of torchrun only says that a rank failed."""
    if rank := _RANK.search(stderr):
        prefix = rank[1]
        stderr = "\n".join(line.removeprefix(prefix) for line in stderr.splitlines() if line.startswith(prefix))
    parts = re.split(r"^Traceback \(most recent call last\):$", stderr, flags=re.M)[1:]
    return [part for part in parts if not re.search(r"^[\w.]+\.ChildFailedError:", part, re.M)] or parts


def last_error(stderr: str) -> str:
    """The last line of the last traceback, such as "RuntimeError: ..."; empty if there is none."""
    for line in "".join(_tracebacks(stderr)[-1:]).splitlines()[1:]:
        if re.match(r"[A-Za-z_][\w.]*(:|$)", line):
            return line
    return ""


def line_of_error(result: Result, is_own: Callable[[str], bool]) -> Line | None:
    """The innermost line of the program in the last traceback that has one. pytest prints tracebacks to stdout."""
    for part in reversed(_tracebacks(result.stderr) or [result.stderr]):
        frames = [Line(file, int(number)) for file, number, _ in _FRAME.findall(part) if is_own(file)]
        if frames:
            return frames[-1]
    places = [Line(file, int(number)) for file, number in _PYTEST_FRAME.findall(result.stdout)]
    return places[-1] if result.status and places else None


def line_of_hang(result: Result, is_own: Callable[[str], bool]) -> Line | None:
    """Where the program waits: the innermost line of the program in the thread that got the signal, or in another."""
    parts = re.split(r"^(Current thread|Thread) 0x.*$", result.stacks, flags=re.M)
    stacks = sorted(zip(parts[1::2], parts[2::2], strict=True), key=lambda stack: stack[0] != "Current thread")
    frames = (Line(file, int(number)) for _, stack in stacks for file, number, _ in _FRAME.findall(stack))
    return next((frame for frame in frames if is_own(frame.file)), None)


def signal_of_rank(stderr: str) -> tuple[str, str] | None:
    """The rank that a signal has ended, and the name of the signal. If there are several, the first that ended."""
    found = list(_RANK_SIGNAL.finditer(stderr))
    if not found:
        return None
    last = found[-1]  # torchrun ends its report with the failure that it saw first
    name = last["name"] or _signal(-int(last["number"]))
    if name == "SIGABRT" and _RANK.search(stderr):  # the failure of another rank may abort this one
        return None
    return last["rank"] or last["process"], name


def _goes_on_alone(result: Result, rank: str) -> bool:
    """Whether torchrun says that other ranks have failed, and the rank with the fault has ended as if nothing were."""
    failed = set(_FAILED_RANK.findall(result.stderr))
    mine = [record for record in result.records if record["rank"] == rank]
    return bool(failed) and rank not in failed and any(each["fired"] for record in mine for each in record["faults"])


def _signal(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class Judge:
    """Judges runs against the first run. ``is_own``: whether a file belongs to the program, which runs in ``folder``."""

    def __init__(self, program: str, folder: Path, is_own: Callable[[str], bool]) -> None:
        self._program = program
        self._folder = folder
        self._is_own = is_own
        self.reference: Reference | None = None
        self.printed: list[tuple[int, str, int]] = []
        self.forks: list[tuple[str, int]] = []  # lines that fork a process which shares pinned memory

    def _line(self, result: Result, run: Run | None = None) -> Line:
        if found := line_of_error(result, self._is_own):
            return Line(str(self._folder / found.file), found.line)
        return self._place(run)

    def _place(self, run: Run | None) -> Line:
        """Where the run had a fault."""
        if run and run.place and run.place.file:
            return Line(run.place.file, run.place.line)
        return Line(self._program, 0)

    def _line_of_hang(self, result: Result) -> Line | None:
        found = line_of_hang(result, self._is_own)
        return found and Line(str(self._folder / found.file), found.line)

    def plain(self, result: Result) -> Iterator[Finding]:
        """The first run: a program that fails here is an error."""
        if result.status == 0:
            return
        line = self._line(result)
        if result.status is None:
            line = self._line_of_hang(result) or line
            yield Finding("hang", *line, f"the program did not end within {result.seconds:.0f} s")
        elif result.status < 0:
            line = self._line_of_crash(result, "") or line
            yield Finding("crash", *line, f"{_signal(result.status)} ends the program{self._last_words(result)}")
        elif ended := signal_of_rank(result.stderr):
            rank, name = ended
            yield Finding("crash", *(self._line_of_crash(result, rank) or line), f"{name} ends rank {rank}")
        else:
            yield Finding("error", *line, last_error(result.stderr) or self._says(result))

    def hints(self, result: Result) -> Iterator[Finding]:
        """What the device has warned of in the first run, in lines of the program."""
        for file, line, text in _HINT.findall(result.stderr):
            if self._is_own(file):
                yield Finding("hint", str(self._folder / file), int(line), text)

    def _line_of_crash(self, result: Result, rank: str) -> Line | None:
        """Where the process was that a signal has ended, if the run was recorded."""
        found = result.last_lines.get(rank) or result.last_lines.get("")
        return found and Line(*found)

    def _says(self, result: Result) -> str:
        words = (result.stderr.strip() or result.stdout.strip()).splitlines()
        return f"exit status {result.status}" + (f": {words[-1]}" if words else "")

    def _last_words(self, result: Result) -> str:
        words = [line for line in result.stderr.strip().splitlines() if line.startswith("openreg")]
        return f": {words[-1]}" if words else ""

    def judge(self, run: Run, result: Result) -> Iterator[Finding]:
        """What a later run has shown."""
        if run.kind == "fault" and not result.fired() and result.status == 0:
            return  # the place was not reached
        line = self._line(result, run)
        after = f" after {run.place.fault}" if run.place else ""
        if result.status is None:
            waits = self._line_of_hang(result)
            at = f": it waits in line {waits.line} of {Path(waits.file).name}" if waits else ""
            yield Finding("hang", *(line if run.place or not waits else waits), f"the program does not end{after}{at}")
        elif result.status < 0:
            yield Finding("crash", *line, f"{_signal(result.status)} ends the program{after}{self._last_words(result)}")
        elif result.status and (ended := signal_of_rank(result.stderr)):
            yield Finding("crash", *line, f"{ended[1]} ends rank {ended[0]}{after}")
        elif run.kind == "sanitizer":
            yield from self._sanitizer(result)
        elif run.kind == "model":
            if result.status:
                what = last_error(result.stderr) or self._says(result)
                yield Finding("model", *line, f"{run.settings['OPENREG_MODEL']}: {what}")
        elif run.kind == "poison":
            yield from self._poison(result, line)
        elif run.kind == "schedule":
            yield from self._schedule(result, line)
        else:
            yield from self._fault(run, result, line)

    def _sanitizer(self, result: Result) -> Iterator[Finding]:
        for record in result.records:
            for kind, file, line, text in record["reports"]:
                yield Finding(kind, file or self._program, line, text.splitlines()[0])
        if result.status and not any(record["reports"] for record in result.records):
            what = last_error(result.stderr) or self._says(result)
            yield Finding("error", *self._line(result), f"with the sanitizer the program fails: {what}")

    def _poison(self, result: Result, line: Line) -> Iterator[Finding]:
        assert self.reference
        with_it = "if new memory holds 0xFF bytes (NaN), which nobody may read before a write,"
        if result.status:
            yield Finding(
                "init", *line, f"{with_it} the program fails: {last_error(result.stderr) or self._says(result)}"
            )
        elif found := self.reference.difference(result):
            yield Finding("init", *self._printed(found.line), f"{with_it} {found.text}")

    def _schedule(self, result: Result, line: Line) -> Iterator[Finding]:
        assert self.reference
        count = sum(record["forced"] for record in result.records)
        forced = f"; {count} items ran without the schedule's choice, so its name alone does not give the order"
        forced = forced if count else ""
        if result.status:
            what = last_error(result.stderr) or self._says(result)
            yield Finding("schedule", *line, f"in another order: {what}{forced}")
        elif self.forks and result.settings.get("OPENREG_EXECUTION") == "late":
            if found := self.reference.in_any_order(result):
                text = "if the parent waits for the process that it forks here, which shares its pinned memory, "
                yield Finding("schedule", *self.forks[0], text + found.text + forced)
        elif found := self.reference.difference(result):
            text = f"in another order of the device's work {found.text}{forced}"
            yield Finding("schedule", *self._printed(found.line), text)

    def _printed(self, number: int) -> Line:
        for first, file, line in reversed(self.printed):
            if first <= number:
                return Line(file, line)
        return Line(self._program, 0)

    def _fault(self, run: Run, result: Result, line: Line) -> Iterator[Finding]:
        assert self.reference and run.place
        fault = run.place.fault
        error = last_error(result.stderr)
        if result.status and run.place.rank and _goes_on_alone(result, run.place.rank):
            text = f"after {fault} rank {run.place.rank} goes on to its end, and another rank fails: {error}"
            yield Finding("recovery", *self._place(run), text)
            return
        if result.status:
            is_unreadable = _UNREADABLE.match(error) and not re.search("injected by|OutOfMemoryError", result.stderr)
            if "injected by" in error or not (_MISTAKES.match(error) or is_unreadable):
                return
            handled = any(_HANDLED.search(part) for part in _tracebacks(result.stderr))
            how = "the handler of the failure fails" if handled else "the program goes on, and fails later"
            yield Finding("recovery", *line, f"after {fault} {how}: {error}")
            return
        first = self.reference.first.record.get("allocated", 0)
        if self.reference.second.record.get("allocated", 0) == first < result.record.get("allocated", 0):
            more = result.record["allocated"] - first
            yield Finding("leak", *line, f"after {fault} {more} bytes more are allocated at the end")
        said = [line for line in _new_lines(self.reference.first, result, without_numbers) if _SAYS.search(line)]
        if not (found := self.reference.difference(result, said)):
            return
        printed = "\n".join(_new_lines(self.reference.first, result, str))
        after = f"the program goes on after {fault}"
        if self.reference.is_part(result, said) and _NAMED.search("\n".join(said)):
            yield Finding("wrong", *line, f"{after}, names it, and leaves out a part of its results", note=True)
        elif found.is_rounding:
            yield Finding("wrong", *line, f"{after} with another rounding: {found.text}", note=True)
        elif not said:
            yield Finding("swallowed", *line, f"nothing tells of {fault}, and {found.text}")
        elif run.place.point == "malloc" and _says_smaller(said) and not _NOT_A_NUMBER.search(printed):
            yield Finding("wrong", *line, f"{after} with other numbers: {found.text}", note=True)
        else:
            yield Finding("wrong", *line, f"{after}, and {found.text}")


def _says_smaller(said: Sequence[str]) -> bool:
    """Whether the program itself says so: the device's message ends with advice."""
    return any(_SMALLER.search(line.partition("out of memory. Tried to allocate")[0]) for line in said)


def _new_lines(first: Result, result: Result, key: Callable[[str], str]) -> Iterator[str]:
    """The lines that a run has printed and the first run has not. Lines with the same ``key`` are the same."""
    known = {key(line) for line in (first.stdout + "\n" + first.stderr).splitlines()}
    return (line for line in (result.stdout + "\n" + result.stderr).splitlines() if key(line) not in known)
