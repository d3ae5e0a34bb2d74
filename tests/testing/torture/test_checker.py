"""The checker sees what it must see, and takes lawful things for lawful."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing.torture.checker import Verdict, check
from tailrace.testing.torture.content import APPLICATIONS, TestApplication, identity, key_of, pairs_of
from tailrace.testing.torture.records import (
    ACKNOWLEDGED,
    DAMAGED,
    DELIVERY_RECORD,
    LOSS_NOTICE,
    RECEIVED,
    SENT,
    WRITE_RECORD,
    RecordFile,
    Records,
    read_records,
    started_row,
)

EVERYTHING = TestApplication("everything", None, lambda shards, numbers: np.ones(len(shards), np.bool_))
EVEN = TestApplication("even", "…", lambda shards, numbers: numbers % 2 == 0)


def checksum(shard: int, number: int) -> int:
    return shard * 1000 + number


def writes(*sent: tuple[int, int], acknowledged: Sequence[int] | None = None) -> Records:
    """Of each (shard, number); all acknowledged unless the acknowledged numbers are given."""
    rows = [(SENT, shard, number, checksum(shard, number)) for shard, number in sent]
    rows += [
        (ACKNOWLEDGED, shard, number, 0) for shard, number in sent if acknowledged is None or number in acknowledged
    ]
    return np.array(rows, WRITE_RECORD)


def deliveries(*received: tuple[int, int], start_ns: int = 0, sequences: Sequence[int] | None = None) -> Records:
    """One session, in batches of one update; the sequences are the numbers unless they are given."""
    rows = [
        (RECEIVED, shard, number, start_ns + at, number if sequences is None else sequences[at], 0,
         checksum(shard, number), start_ns)
        for at, (shard, number) in enumerate(received)
    ]  # fmt: skip
    return np.array(rows, DELIVERY_RECORD)


def at(moments_ns: Sequence[int], session: Records) -> Records:
    """The same session with other moments; those of equal ones came in one batch."""
    session["at_ns"] = moments_ns
    return session


def verdict(written: Records, *files: Records) -> Verdict:
    return check(written, {"everything": files}, [EVERYTHING])["everything"]


def findings(found: Verdict) -> tuple[int, int, int]:
    assert found.after_handover == 0
    return found.lost, found.out_of_order, found.corrupt


def numbers(*of_shard_0: int) -> list[tuple[int, int]]:
    return [(0, number) for number in of_shard_0]


def test_all_in_order_is_fine() -> None:
    found = verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 2, 3)))
    assert findings(found) == (0, 0, 0)
    assert (found.delivered, found.duplicates) == (3, 0)


def test_a_missing_update_is_lost() -> None:
    found = verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 3)))
    assert findings(found) == (1, 0, 0)
    assert found.examples == ["everything: shard 0 number 2 is lost"]


def test_the_last_update_is_missed_too() -> None:
    assert findings(verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 2)))) == (1, 0, 0)


def test_nothing_delivered_is_everything_lost() -> None:
    assert findings(verdict(writes(*numbers(1, 2)))) == (2, 0, 0)


def test_a_swap_is_out_of_order() -> None:
    found = verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 3, 2)))
    assert findings(found) == (0, 1, 0)
    assert found.examples == ["everything: shard 0 number 2 is out of order"]


def test_a_hole_that_is_filled_later_is_out_of_order() -> None:
    assert findings(verdict(writes(*numbers(1, 2, 3, 4)), deliveries(*numbers(1, 4, 2, 3)))) == (0, 2, 0)


def test_a_repeat_after_a_restart_is_a_lawful_duplicate() -> None:
    found = verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 2)), deliveries(*numbers(1, 2, 3), start_ns=100))
    assert findings(found) == (0, 0, 0)
    assert found.duplicates == 2


def test_a_restart_that_skips_ahead_and_comes_back_is_out_of_order() -> None:
    found = verdict(writes(*numbers(1, 2, 3)), deliveries(*numbers(1)), deliveries(*numbers(3, 2), start_ns=100))
    assert findings(found) == (0, 1, 0)


def test_repeats_come_in_order_too() -> None:
    written, first = writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 2, 3))
    found = verdict(written, first, deliveries(*numbers(3, 2, 1), start_ns=100))
    assert findings(found) == (0, 2, 0)
    assert found.examples == [f"everything: shard 0 number {number} is out of order" for number in (1, 2)]


def test_repeats_whose_content_is_swapped_under_rising_positions_are_out_of_order() -> None:
    written, first = writes(*numbers(1, 2, 3)), deliveries(*numbers(1, 2, 3))
    again = deliveries(*numbers(2, 1, 3), start_ns=100, sequences=[1, 2, 3])
    assert findings(verdict(written, first, again)) == (0, 1, 0)


def test_an_update_that_comes_twice_in_one_session_is_out_of_order() -> None:
    assert findings(verdict(writes(*numbers(1, 2)), deliveries(*numbers(1, 2, 2)))) == (0, 1, 0)
    assert findings(verdict(writes(*numbers(1, 2)), deliveries(*numbers(1, 2, 1, 2)))) == (0, 2, 0)


def test_two_subscribers_that_both_get_everything_are_seen() -> None:
    one = at([0, 10, 20, 30], deliveries(*numbers(1, 2, 3, 4)))
    other = at([1, 11, 21, 31], deliveries(*numbers(1, 2, 3, 4), start_ns=1))
    found = verdict(writes(*numbers(1, 2, 3, 4)), one, other)
    assert (found.lost, found.out_of_order, found.duplicates, found.after_handover) == (0, 0, 4, 2)
    assert found.examples == [
        f"everything: shard 0 number {number} is from a session that was over" for number in (2, 3)
    ]


def test_the_batch_that_was_on_its_way_when_the_lease_ended_may_come_late() -> None:
    written = writes(*numbers(1, 2, 3, 4))
    stopped = at([0, 50, 50], deliveries(*numbers(1, 2, 3)))
    following = at([20, 30, 60, 70], deliveries(*numbers(1, 2, 3, 4), start_ns=1))
    assert findings(verdict(written, stopped, following)) == (0, 0, 0)


def test_a_second_batch_after_the_lease_ended_is_seen() -> None:
    written = writes(*numbers(1, 2, 3, 4))
    stopped = at([0, 50, 51], deliveries(*numbers(1, 2, 3)))
    following = at([20, 30, 60, 70], deliveries(*numbers(1, 2, 3, 4), start_ns=1))
    assert verdict(written, stopped, following).after_handover == 1


def test_a_session_whose_only_batch_came_late_took_nothing_over() -> None:
    written = writes(*numbers(1, 2, 3, 4))
    following = at([20, 30, 60, 70], deliveries(*numbers(1, 2, 3, 4), start_ns=1))
    assert findings(verdict(written, deliveries(*numbers(1), start_ns=50), following)) == (0, 0, 0)


def test_a_subscriber_whose_flows_went_to_another_has_them_again_in_a_new_session() -> None:
    written = writes(*numbers(*range(1, 10)))
    first, back = deliveries(*numbers(1, 2, 3)), deliveries(*numbers(6, 7, 8, 9), start_ns=200)
    other = deliveries(*numbers(3, 4, 5, 6), start_ns=100)
    assert findings(verdict(written, np.concatenate([first, back]), other)) == (0, 0, 0)


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_leases_that_end_before_the_next_begins_are_lawful_however_long_a_last_batch_is_held_up(
    seed: int, sessions: int
) -> None:
    """And with one batch more than the last that comes too late, one session is found."""
    draw = random.Random(seed)
    sent = numbers(*range(1, 5))
    files = []
    for session in range(sessions):
        moments = sorted(draw.sample(range(session * 1000, session * 1000 + 900), 4))
        moments[-1] += draw.choice([0, 0, draw.randrange(5000)])
        files.append(at(moments, deliveries(*sent, start_ns=session)))
    assert findings(verdict(writes(*sent), *files)) == (0, 0, 0)
    files[0]["at_ns"][-2:] = [sessions * 1000, sessions * 1000 + 5000]
    assert verdict(writes(*sent), *files).after_handover == 1


def test_two_subscribers_of_an_application_are_one_sequence_in_time() -> None:
    later, earlier = deliveries(*numbers(3, 4), start_ns=100), deliveries(*numbers(1, 2))
    assert findings(verdict(writes(*numbers(1, 2, 3, 4)), later, earlier)) == (0, 0, 0)


def test_shards_are_ordered_each_for_itself() -> None:
    sent = [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert findings(verdict(writes(*sent), deliveries((1, 1), (1, 2), (0, 1), (0, 2)))) == (0, 0, 0)


def test_an_unanswered_write_may_come_or_not() -> None:
    written = writes(*numbers(1, 2, 3), acknowledged=[1, 2])
    assert findings(verdict(written, deliveries(*numbers(1, 2)))) == (0, 0, 0)
    assert findings(verdict(written, deliveries(*numbers(1, 2, 3)))) == (0, 0, 0)


def test_what_one_application_received_was_committed_so_another_must_have_it() -> None:
    written = writes(*numbers(1, 2), acknowledged=[1])
    found = check(written, {"everything": [deliveries(*numbers(1))], "even": [deliveries((0, 2))]}, [EVERYTHING, EVEN])
    assert findings(found["everything"]) == (1, 0, 0)
    assert findings(found["even"]) == (0, 0, 0)


def test_an_unanswered_write_may_land_after_those_of_the_next_connection() -> None:
    written = writes(*numbers(1, 2, 3, 4), acknowledged=[1, 3, 4])
    received = deliveries(*numbers(1, 3, 2, 4), sequences=[11, 12, 13, 14])
    assert findings(verdict(written, received)) == (0, 0, 0)


def test_an_answered_write_may_not_come_after_an_unanswered_later_one() -> None:
    written = writes(*numbers(1, 2, 3), acknowledged=[1, 2])
    assert findings(verdict(written, deliveries(*numbers(1, 3, 2)))) == (0, 1, 0)


def test_an_unanswered_write_still_comes_by_position() -> None:
    written = writes(*numbers(1, 2, 3, 4), acknowledged=[1, 3, 4])
    in_order, swapped = [11, 12, 13, 14], [11, 13, 12, 14]
    assert findings(verdict(written, deliveries(*numbers(1, 3, 2, 4), sequences=in_order))) == (0, 0, 0)
    assert findings(verdict(written, deliveries(*numbers(1, 3, 2, 4), sequences=swapped))) == (0, 1, 0)


def test_an_era_never_falls() -> None:
    received = deliveries(*numbers(1, 2, 3), sequences=[5, 1, 6])
    received["era"] = [0, 1, 1]
    assert findings(verdict(writes(*numbers(1, 2, 3)), received)) == (0, 0, 0)
    received["era"] = [0, 1, 0]
    assert findings(verdict(writes(*numbers(1, 2, 3)), received)) == (0, 1, 0)


def test_damaged_content_is_corrupt() -> None:
    damaged = np.array([(DAMAGED, 0, 0, 0, 0, 0, 0, 0)], DELIVERY_RECORD)
    assert findings(verdict(writes(*numbers(1)), deliveries(*numbers(1)), damaged)) == (0, 0, 1)


def test_content_that_was_not_sent_like_this_is_corrupt_and_lost() -> None:
    received = deliveries(*numbers(1, 2))
    received["checksum"][1] += 1
    assert findings(verdict(writes(*numbers(1, 2)), received)) == (1, 0, 1)


def test_an_update_that_nobody_sent_is_corrupt() -> None:
    assert findings(verdict(writes(*numbers(1)), deliveries(*numbers(1, 7)))) == (0, 0, 1)
    assert findings(verdict(np.empty(0, WRITE_RECORD), deliveries(*numbers(1)))) == (0, 0, 1)


def test_what_the_filter_does_not_want_is_corrupt_and_never_lost() -> None:
    found = check(writes(*numbers(1, 2, 3)), {"even": [deliveries(*numbers(2, 3))]}, [EVEN])["even"]
    assert findings(found) == (0, 0, 1)


def test_a_loss_notice_is_counted() -> None:
    notice = np.array([(LOSS_NOTICE, 0, 0, 0, 0, 0, 0, 0)], DELIVERY_RECORD)
    assert verdict(writes(*numbers(1)), deliveries(*numbers(1)), notice).loss_notices == 1


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(0, 5))
def test_any_restarts_with_repeats_are_lawful(seed: int, count: int, restarts: int) -> None:
    draw = random.Random(seed)
    sent = [(draw.randrange(3), 0) for _ in range(count)]
    sent = [(shard, number) for number, (shard, _) in enumerate(sent, 1)]
    received: list[Records] = []
    reached = 0
    for restart in range(restarts):
        start = draw.randint(0, reached)
        reached = draw.randint(start, count) if start < reached else reached
        received.append(deliveries(*sent[start:reached], start_ns=100 * restart))
        reached = max(reached, start)
    received.append(deliveries(*sent, start_ns=1000))  # the last one goes on from a marker; here the earliest one
    assert findings(verdict(writes(*sent), *received)) == (0, 0, 0)


@given(st.integers(0, 2**32), st.integers(2, 60))
def test_any_single_skip_or_swap_of_neighbours_is_found(seed: int, count: int) -> None:
    draw = random.Random(seed)
    sent = numbers(*range(1, count + 1))
    at = draw.randrange(count - 1)
    assert findings(verdict(writes(*sent), deliveries(*sent[:at], *sent[at + 1 :]))) == (1, 0, 0)
    swapped = [*sent[:at], sent[at + 1], sent[at], *sent[at + 2 :]]
    assert findings(verdict(writes(*sent), deliveries(*swapped))) == (0, 1, 0)


def test_the_part_of_a_record_that_a_kill_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "deliveries"
    file = RecordFile(path, DELIVERY_RECORD)
    file.append([started_row(), (RECEIVED, 1, 2, 3, 4, 5, 6, 2**64 - 1)])
    file.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:13])
    assert len(read_records(path, DELIVERY_RECORD)) == 2
    again = RecordFile(path, DELIVERY_RECORD)
    again.append([(RECEIVED, 1, 3, 4, 4, 5, 6, 7)])
    again.close()
    assert read_records(path, DELIVERY_RECORD)[["number", "session"]].tolist() == [(0, 0), (2, 2**64 - 1), (3, 7)]


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert len(read_records(tmp_path / "absent", WRITE_RECORD)) == 0


def test_an_update_is_known_by_its_content() -> None:
    pairs, sum_ = pairs_of(7, 3, 1234)
    assert identity(key_of(3, 1234), pairs) == (3, 1234, sum_)
    assert pairs_of(7, 3, 1234) == (pairs, sum_)
    assert pairs_of(8, 3, 1234) != (pairs, sum_)


@pytest.mark.parametrize("name", ["shard", "number", "color", "padding", "checksum"])
def test_content_that_changed_on_the_way_is_noticed(name: str) -> None:
    pairs, _ = pairs_of(7, 3, 1235)
    key = key_of(3, 1235)
    assert identity(key, {**pairs, name: pairs[name] + b"1"}) is None
    assert identity(key, {n: value for n, value in pairs.items() if n != name}) is None
    assert identity(key, {**pairs, name: None}) is None
    assert identity(key + b"0", pairs) is None
    assert identity(key, {**pairs, "more": b""}) is None


def test_each_applications_filter_means_what_its_model_says() -> None:
    """The product's own filters agree with the plain numpy that the checker uses."""
    import pyarrow as pa

    from tailrace.updates import UPDATE_SCHEMA, Filter

    rows = []
    for number in range(1, 10):
        for shard in range(8):
            pairs = list(pairs_of(1, shard, number)[0].items())
            rows.append({
                "shard": shard, "era": 0, "sequence": number, "index": 0, "committed_at": None, "table": "torture",
                "operation": "put", "key": key_of(shard, number), "pairs": pairs, "before": None,
            })  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, schema=UPDATE_SCHEMA)
    shards, numbers_ = np.array([r["shard"] for r in rows]), np.array([r["sequence"] for r in rows])
    for application in APPLICATIONS:
        if application.filter is not None:
            mask = Filter.parse(application.filter).mask(batch).to_pylist()
            assert mask == application.wants(shards, numbers_).tolist(), application.name
