"""`tailrace credential`: the file that says who may do what."""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.configuration import find_configuration
from tailrace.cli.output import note, say, say_json, show_table
from tailrace.errors import ConfigInvalid, NotFound
from tailrace.wire.callers import ANY, Scope
from tailrace.wire.credentials import issue_credential, list_credentials, revoke_credential


def issue(
    name: str,
    actions: tuple[str, ...],
    datasets: tuple[str, ...],
    applications: tuple[str, ...],
    replace: bool,
    file: Path | None,
    config: Path | None,
) -> None:
    scope = Scope(actions, datasets or (ANY,), applications or (ANY,))
    target = _file(file, config)
    token = issue_credential(target, name, [scope], replace=replace)
    say(token)
    note(f"the token of {name!r}; {target} holds its hash alone. Give it to clients in TAILRACE_CREDENTIAL or a file")


def show_all(file: Path | None, config: Path | None, as_json: bool) -> None:
    records = list_credentials(_file(file, config))
    rows = [
        [record.name, " ".join(scope.actions), " ".join(scope.datasets), " ".join(scope.applications)]
        for record in records
        for scope in record.scopes
    ]
    columns = ("name", "may", "datasets", "applications")
    if as_json:
        for row in rows:
            say_json(dict(zip(columns, row, strict=True)))
    else:
        show_table("credentials", columns, rows)


def revoke(name: str, file: Path | None, config: Path | None) -> None:
    target = _file(file, config)
    if not revoke_credential(target, name):
        raise NotFound(what="credential", name=name, remedy="see: tailrace credential list")
    say(f"{name} is revoked")


def _file(file: Path | None, config: Path | None) -> Path:
    if file is not None:
        return file
    configured = find_configuration(config)[0].node.credentials_file
    if configured is None:
        raise ConfigInvalid(path="node.credentials_file", reason="is missing; set it, or name the file with --file")
    return configured
