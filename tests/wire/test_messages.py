"""What no message can carry is an error with a name, on the side that would send it."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import ConfigInvalid
from tailrace.wire.messages import DeadShow, encode


@pytest.mark.parametrize(
    ("dataset", "letter", "message"),
    [
        ("\udcff", 1, "DeadShow: a value cannot be sent: 'utf-8' codec can't encode"),
        ("demo", 10**22, "DeadShow: a value cannot be sent: can't serialize ints"),
        ("demo", object(), "DeadShow: a value cannot be sent: Encoding objects of type object is unsupported"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(dataset: str, letter: Any, message: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        encode(DeadShow(dataset, "cache", letter))
    assert message in str(refused.value)
