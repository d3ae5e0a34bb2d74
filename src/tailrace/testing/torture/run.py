"""The run itself: start everything, break it by plan while the writer writes, heal it, wait, and compare the files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from inotify_simple import INotify, flags

from tailrace.errors import ConfigInvalid
from tailrace.testing.processes import ProcessFailed
from tailrace.testing.torture.checker import Verdict, check
from tailrace.testing.torture.cluster import Cluster
from tailrace.testing.torture.content import APPLICATIONS, TestApplication
from tailrace.testing.torture.records import (
    ACKNOWLEDGED,
    DELIVERY_RECORD,
    WRITE_RECORD,
    RecordCounter,
    read_records,
)
from tailrace.testing.torture.report import TortureReport, problems_of
from tailrace.testing.torture.schedule import KINDS, Fault, plan_faults

Sabotage = Literal["skip", "swap", "swap-repeats", "share"]

CATCH_UP_TIMEOUT_S: Final = 120.0  # after healing, until every subscriber has everything
STEP_S: Final = 0.25  # how often progress is told and processes are looked at


@dataclass(frozen=True)
class TortureOptions:
    """`kinds` None means all kinds of fault.

    `folder` must be new or empty; None means a temporary one, removed when the run passed.
    """

    seconds: float = 60.0
    seed: int = 1
    rate_updates_s: float = 2000.0
    quiet_s: float = 20.0  # what has not come after such a silence, with nothing broken any more, is lost
    folder: Path | None = None
    sabotage: Sabotage | None = None
    kinds: tuple[str, ...] | None = None
    prepare: bool = True  # compile the kernels first, where that has not been done
    applications: tuple[TestApplication, ...] = APPLICATIONS


@dataclass(frozen=True)
class Progress:
    """What a run can say of itself while it goes on. `written` and `delivered` come from the files."""

    phase: str  # 'starting' | 'breaking' | 'catching up' | 'checking'
    elapsed_s: float
    written: int
    delivered: int
    faults: dict[str, int]
    fault: str  # the one that lasts now, or empty


Tell = Callable[[Progress], None]


@dataclass
class _Course:
    """What happened in a run so far."""

    began_at: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    beginnings: list[float] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    fault: str = ""


def run_torture(
    options: TortureOptions, tell: Tell = lambda progress: None, stop: threading.Event | None = None
) -> TortureReport:
    """One run. Setting `stop` ends the breaking early; healing and checking follow all the same."""
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tailrace-torture-"))
    _require_empty(folder)
    report = _Run(options, folder, tell, stop or threading.Event()).report()
    if options.folder is None and report.passed:
        shutil.rmtree(folder)
    return report


def _require_empty(folder: Path) -> None:
    """The records of an earlier run would be taken for this one's."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigInvalid(path=str(folder), reason=f"cannot be used as a folder: {error.strerror}") from error
    if not empty:
        raise ConfigInvalid(path=str(folder), reason="is not empty; a run needs a folder that is new or empty")


class _Run:
    def __init__(self, options: TortureOptions, folder: Path, tell: Tell, stop: threading.Event) -> None:
        self._options = options
        self._folder = folder
        self._tell = tell
        self._stop = stop
        self._course = _Course()
        self._cluster = Cluster(
            folder,
            options.applications,
            seed=options.seed,
            rate_updates_s=options.rate_updates_s,
            sabotage=options.sabotage,
        )
        self._acknowledged = RecordCounter(self._cluster.writes_file, WRITE_RECORD, ACKNOWLEDGED)

    def report(self) -> TortureReport:
        course, cluster = self._course, self._cluster
        caught_up_s = seconds = 0.0
        try:
            self._show("starting")
            if self._options.prepare:
                # So that not each process compiles the same kernels, and is killed while it does.
                subprocess.run([sys.executable, "-m", "tailrace.testing.kernels"], check=True)
            with cluster:
                course.began_at = time.monotonic()
                self._break_by_plan()
                seconds = time.monotonic() - course.began_at
                cluster.heal()
                cluster.end_writer()
                caught_up_s = self._catch_up()
                course.unexpected += cluster.end()
        except ProcessFailed as error:
            course.unexpected.append(str(error))
        self._show("checking")
        return self._reported(seconds or time.monotonic() - course.began_at, caught_up_s)

    # ---- breaking

    def _break_by_plan(self) -> None:
        course = self._course
        for fault in self._plan():
            if not self._pass_until(fault.at_s):
                return
            course.fault = fault.kind
            course.faults[fault.kind] += 1
            course.beginnings.append(time.monotonic() - course.began_at)
            self._cluster.begin(fault)
            going_on = self._pass_until(min(fault.at_s + fault.lasts_s, self._options.seconds))
            self._cluster.end_fault(fault)
            course.fault = ""
            if not going_on:
                return
        self._pass_until(self._options.seconds)

    def _plan(self) -> list[Fault]:
        kinds = KINDS if self._options.kinds is None else self._options.kinds
        return plan_faults(self._options.seed, self._options.seconds, kinds)

    def _pass_until(self, at_s: float) -> bool:
        """Lets the time pass; False if the run was stopped, or something ended that nobody killed."""
        while not self._course.unexpected:
            self._show("breaking")
            self._course.unexpected += self._cluster.ended_by_themselves()
            left_s = self._course.began_at + at_s - time.monotonic()
            if left_s <= 0:
                return True
            if self._stop.wait(min(left_s, STEP_S)):
                return False
        return False

    # ---- the end

    def _catch_up(self) -> float:
        """Until nothing is missing any more, woken whenever a subscriber's file grows; returns how long that took."""
        began = time.monotonic()
        with INotify() as watch:
            for paths in self._cluster.delivery_files.values():
                for path in paths:
                    watch.add_watch(path, flags.MODIFY)
            grown_at = began
            while any(verdict.lost for verdict in self._verdicts().values()):
                self._show("catching up")
                self._course.unexpected += self._cluster.ended_by_themselves()
                # With a delay, so that many small appends cost one look.
                if watch.read(timeout=int(STEP_S * 1000), read_delay=100):
                    grown_at = time.monotonic()
                quiet = time.monotonic() - grown_at > self._options.quiet_s
                if quiet or time.monotonic() - began > CATCH_UP_TIMEOUT_S or self._course.unexpected:
                    break
        return time.monotonic() - began

    def _verdicts(self) -> dict[str, Verdict]:
        writes = read_records(self._cluster.writes_file, WRITE_RECORD)
        deliveries = {
            name: [read_records(path, DELIVERY_RECORD) for path in paths]
            for name, paths in self._cluster.delivery_files.items()
        }
        return check(writes, deliveries, self._options.applications)

    def _reported(self, seconds: float, caught_up_s: float) -> TortureReport:
        course = self._course
        verdicts = self._verdicts()
        total = Verdict()
        for verdict in verdicts.values():
            total.add(verdict)
        written = self._written()
        faults = {kind: course.faults[kind] for kind in KINDS}
        beginnings = [0.0, *course.beginnings, seconds]
        return TortureReport(
            seed=self._options.seed,
            seconds=round(seconds, 3),
            written=written,
            updates_s=round(written / seconds, 1) if seconds else 0.0,
            lost=total.lost,
            out_of_order=total.out_of_order,
            after_handover=total.after_handover,
            corrupt=total.corrupt,
            duplicates=total.duplicates,
            loss_notices=total.loss_notices,
            kills=sum(count for kind, count in faults.items() if kind.startswith("kill ")),
            faults=faults,
            longest_gap_s=round(max(later - earlier for earlier, later in pairwise(beginnings)), 3),
            delivered={name: verdict.delivered for name, verdict in verdicts.items()},
            caught_up_s=round(caught_up_s, 3),
            problems=problems_of(
                written=written,
                seconds=seconds,
                lost=total.lost,
                out_of_order=total.out_of_order,
                after_handover=total.after_handover,
                corrupt=total.corrupt,
                loss_notices=total.loss_notices,
                faults=faults,
                examples=total.examples,
                unexpected=course.unexpected,
            ),
        )

    def _written(self) -> int:
        return self._acknowledged.count()

    def _show(self, phase: str) -> None:
        files = [path for paths in self._cluster.delivery_files.values() for path in paths]
        delivered = sum(path.stat().st_size for path in files if path.exists()) // DELIVERY_RECORD.itemsize
        elapsed_s = time.monotonic() - self._course.began_at if self._course.began_at else 0.0
        self._tell(
            Progress(phase, elapsed_s, self._written(), delivered, dict(self._course.faults), self._course.fault)
        )
