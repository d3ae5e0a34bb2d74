from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import ConfigInvalid
from tailrace.runtime.secrets import Secret, read_secret


def test_a_secret_does_not_show_its_text() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert secret != Secret("hunter3")


def test_a_secret_comes_from_a_file_without_its_line_break(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    found = read_secret("db.password", file=tmp_path / "password", environment_name=None, environment={})
    assert found == Secret("hunter2")


def test_a_secret_comes_from_a_named_variable() -> None:
    found = read_secret("db.password", file=None, environment_name="DB", environment={"DB": "hunter2"})
    assert found == Secret("hunter2")


def test_a_secret_may_be_absent() -> None:
    assert read_secret("db.password", file=None, environment_name=None, environment={"DB": "x"}) is None


@pytest.mark.parametrize(
    ("file", "name", "path"),
    [("missing", None, "db.password_file"), (None, "DB", "db.password_env"), ("a", "DB", "db.password_file")],
)
def test_a_secret_that_cannot_be_had_names_the_key(file: str | None, name: str | None, path: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_secret("db.password", file=file, environment_name=name, environment={})
    assert caught.value.path == path


@pytest.mark.parametrize(("content", "reason"), [(b"", "is empty"), (b"\xff", "UTF-8"), (b"x" * 70_000, "too large")])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "password").write_bytes(content)
    with pytest.raises(ConfigInvalid, match=reason):
        read_secret("db.password", file=tmp_path / "password", environment_name=None, environment={})
