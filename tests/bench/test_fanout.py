"""What counts as the whole log, where one application was stopped and may get some of it again."""

from __future__ import annotations

import pytest

from tailrace.bench.fanout import require_whole_log
from tailrace.bench.subscribing import Received
from tailrace.errors import TailraceError

WHOLE = Received(100, 1.0, 100)


def test_repeats_are_lawful_for_the_stopped_one() -> None:
    require_whole_log(100, Received(130, 1.0, 100), [WHOLE, WHOLE])


def test_a_hole_does_not_hide_behind_repeats() -> None:
    with pytest.raises(TailraceError, match="but the stopped application received 99 of them"):
        require_whole_log(100, Received(130, 1.0, 99), [WHOLE])


@pytest.mark.parametrize("other", [Received(101, 1.0, 100), Received(100, 1.0, 99), Received(99, 1.0, 99)])
def test_the_others_get_each_update_once(other: Received) -> None:
    with pytest.raises(TailraceError, match=rf"others received .*\[\({other.updates}, {other.distinct}\)\]"):
        require_whole_log(100, WHOLE, [WHOLE, other])
