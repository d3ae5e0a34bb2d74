"""What `tailrace status` shows: who is behind, by how much, and why."""

from __future__ import annotations

import time
from typing import Final

from tailrace.publisher.applications import Application
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.resume import in_era
from tailrace.sources.interface import Bounds
from tailrace.updates.position import START, Position
from tailrace.wire.callers import ANYONE, Caller
from tailrace.wire.messages import ApplicationStatus, DatasetStatus

LIVE_WITHIN_S: Final = 2.0  # progress is reported a few times a second; more is an application that does not keep up


def dataset_status(publisher: DatasetPublisher, caller: Caller = ANYONE) -> DatasetStatus:
    """Names no application to a caller who may not read that one's status."""
    problem = publisher.problem()
    bounds = _bounds(publisher)
    applications = [one for one in publisher.applications() if one.record.mode == "reliable"]
    pinned = min(applications, key=lambda one: one.acknowledged, default=None)
    may_name = pinned is not None and caller.may("read", publisher.dataset, pinned.name)
    return DatasetStatus(
        dataset=publisher.dataset,
        line=publisher.source.line,
        era=publisher.source.era,
        oldest=bounds.after,
        head=bounds.through,
        log_bytes=publisher.caravans.log_bytes,
        caravans=publisher.caravans.count,
        pinned_by=pinned.name if pinned and may_name else "",
        error=problem,
    )


def application_status(publisher: DatasetPublisher, application: Application) -> ApplicationStatus:
    head = _bounds(publisher).through
    active = application.active
    stream = active.stream if active else None
    sent = stream.sent if stream and not stream.standby else application.acknowledged
    processed = max(application.progress or START, application.acknowledged)
    state, reason = _state(publisher, application, head)
    return ApplicationStatus(
        dataset=publisher.dataset,
        application=application.name,
        state=state,
        reason=reason,
        subscriber=stream.subscriber if stream else "",
        standbys=len(application.standbys),
        sent=sent,
        acknowledged=application.acknowledged,
        progress=application.progress,
        lag_positions=max(0, head.sequence - processed.sequence) if head.era == processed.era else head.sequence,
        lag_s=_lag_s(publisher, application, head),
        queued_bytes=stream.queued_bytes if stream else 0,
        updates_s=stream.updates_rate.per_s() if stream else 0.0,
        bytes_s=stream.bytes_rate.per_s() if stream else 0.0,
        dead_letters=application.dead_letters,
        filter=application.record.filter,
    )


def _bounds(publisher: DatasetPublisher) -> Bounds:
    """The log's bounds; those last known when it cannot be read now (`problem` says why)."""
    return publisher.last_bounds


def _state(publisher: DatasetPublisher, application: Application, head: Position) -> tuple[str, str]:
    active = application.active
    if application.problem:
        return "failed", application.problem
    if active is None:
        waits = f"for the lease of {application.holder}, which had the flows before the publisher was restarted"
        return "waiting", waits if application.standbys else "no subscriber"
    if not active.connected:
        return "waiting", "its subscriber is gone; its lease runs out"
    if active.stream.blocked_by:
        return "blocked", active.stream.blocked_by
    if not publisher.caravans.is_lead(active.stream.riding):
        return "catching up", f"{head.sequence - active.stream.sent.sequence} sequence numbers are still to be sent"
    if (_lag_s(publisher, application, head) or 0.0) > LIVE_WITHIN_S:
        return "catching up", "its subscriber takes longer to process updates than they take to come"
    return "live", ""


def _lag_s(publisher: DatasetPublisher, application: Application, head: Position) -> float | None:
    """How old the oldest update is that it has not processed; zero for an application that has all."""
    stream = application.active.stream if application.active else None
    processed = max(application.progress or START, application.acknowledged)
    if processed >= head:
        return 0.0
    since_us = stream.unprocessed_since_us(processed) if stream else None
    if since_us is None:
        since_us = publisher.ages.committed_after(in_era(processed, head.era))
    return None if since_us is None else max(0.0, time.time() - since_us / 1e6)
