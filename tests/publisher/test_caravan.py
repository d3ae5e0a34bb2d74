"""Riders take at their own pace; nobody waits for a laggard for longer than its patience."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from tailrace.publisher.caravan import Caravan, Entry, Holding, Patience, Rider, ahead, to_move_off
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.sources.interface import LogBatch
from tailrace.testing.memory_source import MemorySource, rows
from tailrace.updates.filters import Filter
from tailrace.updates.position import START, Checkpoint, Position

BATCHES = 40


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Caravan]]:
    running: list[Caravan] = []

    def go(source: MemorySource, *, window_bytes: int = 1 << 20, patience_s: float = 0.05) -> Caravan:
        caravan = Caravan(
            "test",
            source,
            START,
            window_bytes=window_bytes,
            batch_bytes=1 << 20,
            patience=Patience(patience_s, 1.0),
            clock=SYSTEM_CLOCK,
            on_ended=lambda _: None,
        )
        running.append(caravan)
        return caravan

    yield go
    for caravan in running:
        caravan.end()


def take_all(caravan: Caravan, rider: Rider, until: int) -> list[int]:
    found: list[int] = []
    while (not found or found[-1] < until) and rider.aboard:
        for entry in caravan.take(rider, 0.1, 1 << 20):
            found += entry.batch.updates.column("sequence").to_pylist()
    return found


def filled(batches: int = BATCHES, size_bytes: int = 10) -> MemorySource:
    source = MemorySource()
    for _ in range(batches):
        source.append(3, size_bytes=size_bytes)
    return source


def test_riders_share_one_read_of_the_log(start: Callable[..., Caravan]) -> None:
    source = filled()
    caravan = start(source)
    riders = [caravan.board(f"r{n}", START) for n in range(5)]
    caravan.start()
    for rider in riders:
        assert rider is not None
        assert take_all(caravan, rider, 3 * BATCHES) == list(range(1, 3 * BATCHES + 1))
    assert source.reads == 1


def test_a_stream_boards_only_where_its_place_lies_in_the_window(start: Callable[..., Caravan]) -> None:
    caravan = start(filled(), window_bytes=100_000)
    rider = caravan.board("first", START)
    assert rider is not None
    caravan.start()
    take_all(caravan, rider, 3 * BATCHES)
    assert caravan.board("late", START) is None
    assert caravan.board("early", Position(0, 3 * BATCHES + 1)) is None
    in_time = caravan.board("in time", Position(0, 3 * BATCHES - 3))
    assert in_time is not None
    assert take_all(caravan, in_time, 3 * BATCHES) == [118, 119, 120]


def test_a_stopped_rider_is_moved_off_and_the_others_go_on(start: Callable[..., Caravan]) -> None:
    caravan = start(filled(), window_bytes=100_000)
    stopped, going = caravan.board("stopped", START), caravan.board("going", START)
    assert stopped is not None
    assert going is not None
    caravan.start()
    assert take_all(caravan, going, 3 * BATCHES) == list(range(1, 3 * BATCHES + 1))
    assert not stopped.aboard
    assert caravan.take(stopped, 0.01, 1 << 20) == []


def test_riders_that_are_slow_together_are_waited_for(start: Callable[..., Caravan]) -> None:
    caravan = start(filled(), window_bytes=100_000, patience_s=0.05)
    slow, slower = caravan.board("slow", START), caravan.board("slower", START)
    assert slow is not None
    assert slower is not None
    caravan.start()
    deadline = time.monotonic() + 10
    while caravan.window_used_bytes < 80_000:
        assert time.monotonic() < deadline
    threading.Event().wait(0.25)  # many times the patience
    assert slow.aboard
    assert slower.aboard
    assert caravan.window_used_bytes <= 100_000
    while slower.next_entry < BATCHES and slower.aboard:  # from now on each keeps the other waiting for a moment only
        caravan.take(slow, 0.1, 1 << 20)
        caravan.take(slower, 0.1, 1 << 20)
    assert (slow.next_entry, slower.next_entry) == (BATCHES, BATCHES)


def test_only_a_laggard_that_starves_others_loses_its_place() -> None:
    rider = Rider("r", 0, judged_at=0.0)
    limits = Patience(0.1, 1.0)
    assert to_move_off(Holding((rider,), someone_starves=False), 60.0, 60.0, limits) == ()
    assert to_move_off(Holding((rider,), someone_starves=True), 0.06, 60.0, limits) == ()
    assert to_move_off(Holding((rider,), someone_starves=True), 0.06, 60.06, limits) == (rider,)


@pytest.mark.parametrize(("share", "moved"), [(0.4, False), (0.9, True)])
def test_a_rider_that_holds_others_up_most_of_the_time_is_slow_however_often_it_takes(
    share: float, moved: bool
) -> None:
    rider = Rider("r", 0, judged_at=0.0)
    found: tuple[Rider, ...] = ()
    for second in range(1, 20):
        rider.stalled_s = 0.0
        found = found or to_move_off(Holding((rider,), someone_starves=True), share, float(second), Patience(1.0, 1.0))
    assert bool(found) is moved


def test_a_caravan_without_riders_ends(start: Callable[..., Caravan]) -> None:
    ended = threading.Event()
    caravan = Caravan(
        "test",
        filled(),
        START,
        window_bytes=1 << 20,
        batch_bytes=1 << 20,
        patience=Patience(1, 1),
        clock=SYSTEM_CLOCK,
        on_ended=lambda _: ended.set(),
    )
    rider = caravan.board("only", START)
    assert rider is not None
    caravan.start()
    caravan.leave(rider)
    assert ended.wait(10)
    assert caravan.board("next", START) is None


def test_filters_run_once_per_distinct_filter(start: Callable[..., Caravan], monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    mask = Filter.mask

    def counted(self: Filter, *args: object) -> object:
        runs.append(str(self))
        return mask(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Filter, "mask", counted)
    caravan = start(filled(1))
    rider = caravan.board("r", START)
    assert rider is not None
    caravan.start()
    (entry,) = caravan.take(rider, 10, 1 << 20)
    for text in ("n = '1'", "n='1'", "n = '2'"):
        entry.select(Filter.parse(text))
    assert entry.select(Filter.parse("n = '2'")).column("sequence").to_pylist() == [2]
    assert len(runs) == 2


def test_the_lead_is_the_one_furthest_ahead(start: Callable[..., Caravan]) -> None:
    behind, front = start(filled()), start(filled())
    rider = front.board("r", START)
    assert rider is not None
    front.start()
    take_all(front, rider, 3 * BATCHES)
    assert ahead([behind, front]) == [front, behind]


def test_rows_that_a_filter_picked_are_kept_only_while_a_stream_holds_them(start: Callable[..., Caravan]) -> None:
    caravan = start(filled(1))
    rider = caravan.board("r", START, filter=Filter.parse("n = '2'"))
    assert rider is not None
    caravan.start()
    (entry,) = caravan.take(rider, 10, 1 << 20)
    first = entry.select(Filter.parse("n = '2'"))
    assert entry.select(Filter.parse("n = '2'")) is first
    gone = weakref.ref(first)
    del first
    assert gone() is None
    assert entry.select(Filter.parse("n = '2'")).column("sequence").to_pylist() == [2]


def test_a_batch_counts_for_its_share_of_buffers_that_others_use_too() -> None:
    large = rows(range(1, 1001), size_bytes=100)
    one_row = large.slice(10, 1)
    entry = Entry(START, LogBatch(one_row, Checkpoint(Position(0, 11, 0), None), 0, at_head=True))
    assert 100 < entry.bytes_of(one_row) < 500 < large.nbytes
    assert entry.bytes_of(large) == large.get_total_buffer_size()
