"""Runs the plan: the first two runs, all others, and one more for each finding."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ._judge import Finding, Judge, Reference
from ._own import is_own
from ._plan import FAULTS, Place, Run, fault_runs, first_part, in_single_ranks, places
from ._processes import Limits, OutOfTime, Result, Runner

# Times the first run. A budget ends no runs with the sanitizer or with another schedule of a program that is not slow.
BUDGET = 15
SHORTEST_BUDGET = 60.0
GRACE = 60.0  # seconds after the budget: a run that has begun may show a hang
FEW_FAULTS = 8  # runs, for which the imports in a server of their own take longer than they save
SLOWEST = 6  # a run takes at most this times the first: the sanitizer takes the most

Found: TypeAlias = "Future[list[Finding] | None]"  # what a run shows; None: there was no time for it


@dataclass
class Options:
    words: Sequence[str]  # what follows `python`
    shown: str  # the program, as the commands that repeat a finding write it
    program: str  # the file of the findings without a line
    places: int
    seeds: int
    models: Sequence[str]
    compare: str
    hook: Callable[[Result, Result], object] | None
    budget: float | None  # seconds; None: 15 times the first run
    timeout: float | None
    jobs: int | None  # None: as many as there are processors and memory


def available_memory() -> int:
    """The bytes that new processes can have: those of the machine, or what a container leaves if that is less."""
    found = []
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):  # "max" is no number
        limit, used = (int(Path("/sys/fs/cgroup", f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - used))
    return min(found, default=1 << 62)


def jobs_for(options: Options, in_place: bool, memory: int) -> int:
    """How many runs at a time, of a program that needs ``memory`` bytes."""
    if in_place:  # they would write the same files
        return 1
    if options.jobs is not None:
        return max(1, options.jobs)
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // max(memory, 1)))


@dataclass
class Session:
    """Everything that was found so far, also if Ctrl-C or the budget ends it."""

    options: Options
    runner: Runner
    say: Callable[[str], None]
    findings: dict[Any, Finding] = field(default_factory=dict)
    looked_at: dict[str, Any] = field(default_factory=dict)
    _fresh: bool = False
    _jobs: int = 1
    _loaded: bool = False
    _end: float = math.inf

    def run(self) -> None:
        options, begin = self.options, time.monotonic()
        runs = first_part(options.seeds, options.models)
        self.say(
            f"check: 2 plain runs, 1 with the sanitizer, 1 with poison, {options.seeds + 1} schedules and "
            f"{len(options.models)} models, at most {options.places} with faults for each of {len(FAULTS)} kinds, and "
            "1 more for each run that finds something"
        )
        judge = Judge(options.program, self.runner.folder, is_own)
        self.looked_at = {"runs": 0, "planned": 2 + len(runs), "schedules": 0, "models": list(options.models)}
        reference = self._plain(judge)
        if reference is None:
            return
        judge.reference = reference
        record = reference.second.record
        judge.printed = [(number, file, line) for number, file, line in record.get("printed", [])]
        judge.forks = [(file, line) for file, line in record.get("forks", [])]
        counts = record.get("counts", {})
        chosen: list[Place] = []
        for point in FAULTS:
            chosen += places(point, counts.get(point, 0), record.get("places", {}).get(point, []), options.places)
        ranks = sorted({record["rank"] for record in reference.second.records if record.get("rank")}, key=int)
        runs += fault_runs(in_single_ranks(chosen, ranks))
        self.looked_at |= {
            "planned": 2 + len(runs),
            "calls": {FAULTS[point][1]: counts.get(point, 0) for point in FAULTS},
            "faults": {FAULTS[point][1]: 0 for point in FAULTS},
            "waits": record.get("waits", 0),
            "peak": record.get("peak", 0),
            "not_compared": reference.not_compared(),
        }
        for text in reference.not_compared():
            self.say(f"check: not compared, because two plain runs differ in it: {text}")
        seconds = reference.first.seconds
        budget = options.budget or max(SHORTEST_BUDGET, BUDGET * seconds)
        memory = max(reference.first.memory, reference.second.memory)
        self._jobs = self.looked_at["jobs"] = jobs_for(options, self.runner.in_place, memory)
        at_a_time = f", {self._jobs} at a time" if self._jobs > 1 else ""
        self.say(f"check: {len(runs)} more runs of about {seconds:.1f} s{at_a_time}, at most {budget:.0f} s for all")
        self._end = begin + budget
        self._rest(judge, runs, self._limits(seconds))

    def _limits(self, seconds: float) -> Limits:
        """Of a run of a program whose first run took so many ``seconds``."""
        timeout, until = self.options.timeout, self._end + GRACE
        if timeout is not None:
            return Limits(timeout, timeout, until)
        return Limits(max(60.0, SLOWEST * seconds), max(60.0, 2 * seconds), until)

    def _plain(self, judge: Judge) -> Reference | None:
        timeout = self.options.timeout
        limits = Limits() if timeout is None else Limits(timeout, timeout)
        first = self.runner.run({}, "modules", limits, fresh=True)
        if ranks := [record for record in first.records if record["is_started"]]:
            self.runner.serve_ranks(ranks[0]["threads"])
        second = self.runner.run({}, "record", limits)
        if first.status == 0 != second.status:  # is it the program, or the way in which it was started?
            again = self.runner.run({}, "record", limits, fresh=True)
            self._fresh = again.status == 0
            second = again
        self.looked_at["runs"] += 2
        failed = [[each.within(self.runner.folder) for each in judge.plain(result)] for result in (first, second)]
        if all(failed) and failed[0][0].kind == failed[1][0].kind:
            failed[0] = failed[1]  # one failure, and the recorded run knows the line in which a signal came
        for found in failed:
            for finding in found:
                self._add(finding, Run("plain", {}))
                finding.sure = "always (2 of 2 runs)" if all(failed) else "sometimes (1 of 2 runs)"
        if any(failed):
            self.say("check: the program fails without any instrument, so the other runs are left out")
            return None
        for finding in judge.hints(first):
            self._add(finding.within(self.runner.folder), Run("plain", {}))
        return Reference(first, second, self.options.compare, self.options.hook)

    def _rest(self, judge: Judge, runs: Sequence[Run], limits: Limits) -> None:
        """Several runs at a time. What they show is judged in the order of the plan, whichever run ends first."""
        assert judge.reference
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                todo, begun, done = deque(runs), deque[tuple[Run, Found]](), 0
                loading = [pool.submit(self._load, judge.reference, limits)] if self._loads(runs) else []
                while todo or begun:
                    if not (begun and begun[0][1].done()):
                        running = [each for _, each in begun if not each.done()]
                        if todo and len(running) < self._jobs:
                            run = todo.popleft()
                            begun.append((run, pool.submit(self._one, judge, run, limits, loaded=True)))
                        else:
                            wait(running, return_when=FIRST_COMPLETED)
                        continue
                    run, future = begun.popleft()
                    done += 1
                    if (found := future.result()) is None:
                        continue
                    self._count(run)
                    new = [finding for finding in found if self._add(finding, run)]
                    if again := [finding for finding in new if not finding.note]:
                        wait(loading)
                        wait([each for _, each in begun])  # alone: no other run can be the reason
                        self._confirm(again, pool.submit(self._one, judge, run, limits, loaded=False).result())
                    if done % 10 == 0:
                        self.say(f"check: {done} of {len(runs)} runs, {len(self.findings)} findings so far")
                for each in loading:
                    each.result()  # an exception that _load() does not expect
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                self.runner.stop()
                raise

    def _one(self, judge: Judge, run: Run, limits: Limits, loaded: bool) -> list[Finding] | None:
        """What a run shows; None if there is no time for it. ``loaded``: it may begin after the imports."""
        assert judge.reference
        shortest = min(judge.reference.first.seconds, judge.reference.second.seconds)
        loaded = loaded and self._loaded and run.kind == "fault"
        if time.monotonic() + shortest > self._end:
            return None
        what = "sanitize" if run.kind == "sanitizer" else ""
        settings = {} if run.kind == "sanitizer" else run.settings
        try:
            result = self.runner.run(settings, what, limits, self._fresh, loaded)
            found = self._judge(judge, run, result)
            if loaded and any(not each.note and each.key not in self.findings for each in found):
                # A finding must not come from the way in which the program was started.
                found = self._judge(judge, run, self.runner.run(settings, what, limits))
        except OutOfTime:
            return None
        return found

    def _judge(self, judge: Judge, run: Run, result: Result) -> list[Finding]:
        return [finding.within(self.runner.folder) for finding in judge.judge(run, result)]

    def _loads(self, runs: Sequence[Run]) -> bool:
        return sum(run.kind == "fault" for run in runs) >= FEW_FAULTS and not self._fresh

    def _load(self, reference: Reference, limits: Limits) -> None:
        """From now on runs with a fault begin after the imports, if the program does the same there."""
        first = reference.first
        with contextlib.suppress(OutOfTime, OSError, EOFError):
            if self.runner.load(first):
                tried = self.runner.run({}, "", limits, loaded=True)
                is_same = all(tried.record.get(key) == first.record.get(key) for key in ("counts", "allocated"))
                self._loaded = tried.status == 0 and is_same and reference.difference(tried) is None

    @staticmethod
    def _confirm(earlier: Sequence[Finding], found: Sequence[Finding] | None) -> None:
        """Says of each finding whether a second run has it too; None: there was no time for one."""
        keys = {each.key for each in found or ()}
        for each in earlier if found is not None else ():
            each.sure = "always (2 of 2 runs)" if each.key in keys else "sometimes (1 of 2 runs)"

    def _count(self, run: Run) -> None:
        self.looked_at["runs"] += 1
        if run.kind == "schedule":
            self.looked_at["schedules"] += 1
        if run.place:
            self.looked_at["faults"][FAULTS[run.place.point][1]] += 1

    def _add(self, finding: Finding, run: Run) -> bool:
        """Whether the finding is new."""
        known = self.findings.get(finding.key)
        if known is not None:
            known.runs.append(run)
            return False
        finding.runs.append(run)
        finding.repeat = " ".join(
            [*(f"{name}={shlex.quote(value)}" for name, value in run.settings.items()), self.options.shown]
        )
        self.findings[finding.key] = finding
        return True


def program_file(words: Sequence[str], folder: Path) -> str:
    """The file of a program; for a module its name."""
    return words[1] if words[0] == "-m" else str(folder / words[0])
