"""Who is answered what, apart from what a dataset's publisher decides."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.errors import Fenced, Unavailable
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters, to_ipc
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.service import PublisherService
from tailrace.testing.memory_source import MemorySource
from tailrace.wire.callers import ANYONE, Caller, Scope
from tailrace.wire.messages import Alive, BuryDead, DeadDone, Redelivery, Updates, decode_reply, encode
from tests.publisher.conftest import MemoryRecords, Rig


def ask(service: PublisherService, caller: Caller, message: Alive | BuryDead | DeadDone) -> None:
    decode_reply(service.actions()[type(message).__name__](caller, encode(message)))


def test_a_session_that_is_over_is_fenced_whichever_dataset_the_caller_may_use(rig: Rig) -> None:
    accounts = DatasetPublisher(
        "accounts",
        1,
        MemorySource("accounts"),
        epoch=1,
        records=MemoryRecords(),
        markers=MarkerStore(rig.ledger),
        dead=DeadLetters(rig.ledger, rig.clock),
        settings=rig.settings,
        clock=rig.clock,
    )
    service = PublisherService([accounts, rig.publisher], address="127.0.0.1:7400")
    caller = Caller("web", (Scope(("subscribe",), ("shop",), ("app",)),), "127.0.0.1")
    with pytest.raises(Fenced, match="it is over"):
        ask(service, caller, Alive(session="gone"))


def test_letters_that_were_tried_again_are_settled_though_there_is_no_room_for_another(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_dead_letters=1)
    rig.restart()
    service = PublisherService([rig.publisher], address="127.0.0.1:7400")
    rig.source.append(3)
    listener = rig.subscribe()
    batch, _ = listener.seen(Updates)
    session = listener.stream.session
    ask(service, ANYONE, BuryDead(session, to_ipc(batch.slice(0, 1)), ["no"], 1))
    with pytest.raises(Unavailable, match="1 dead letters already"):
        ask(service, ANYONE, BuryDead(session, to_ipc(batch.slice(1, 1)), ["no"], 1))
    rig.publisher.retry_dead("app", None)
    _, message = listener.seen(Redelivery)
    assert isinstance(message, Redelivery)
    ask(service, ANYONE, DeadDone(session, message.letters, {}))
    assert rig.publisher.application("app").dead_letters == 0
