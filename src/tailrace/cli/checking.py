"""`tailrace check`: looks at everything that a configuration names, and says what to do about each problem.

Nothing is changed and nothing is created. Each finding names the thing, what is wrong with it, and the remedy; what the
configuration's own text already shows to be wrong fails before, when it is read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Final

import typer

from tailrace.cli.configuration import Configuration, configuration_schema, find_configuration, with_changes
from tailrace.cli.failures import FAILED, remedy_for
from tailrace.cli.findings import Finding, ok, problem, warning
from tailrace.cli.output import note, say, show_table
from tailrace.cli.roles.security import EXPOSED, PROTECT, addresses, is_safe, known_credentials, server_tls
from tailrace.cli.source_checks import check_sources
from tailrace.errors import TailraceError
from tailrace.wire.tls import TLS

ENOUGH_DISK_BYTES: Final = 2 << 30
_OTHERS: Final = 0o077


def print_schema() -> None:
    say(json.dumps(configuration_schema(), indent=2))


def check_node(config: Path | None, data_folder: Path | None) -> None:
    configuration, file = find_configuration(config)
    if data_folder is not None:
        configuration = with_changes(
            configuration, {"node": with_changes(configuration.node, {"data_folder": data_folder})}
        )
    found = list(findings(configuration, file))
    show_table("check", ("result", "what", "found", "what to do"), [finding.row() for finding in found])
    problems = sum(finding.result == "problem" for finding in found)
    if problems:
        note(f"{problems} problem{'s' if problems > 1 else ''}")
        raise typer.Exit(FAILED)


def findings(configuration: Configuration, file: Path | None) -> Iterator[Finding]:
    shown = str(file) if file else "one-machine default"
    counts = f"{_counted(configuration.dataset, 'dataset')}, {_counted(configuration.app, 'application')}"
    yield ok("configuration", f"{shown}: {counts}")
    yield from _data_folder(configuration.node.data_folder.resolve())
    yield from _security(configuration)
    yield from check_sources(configuration)


def _counted(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _data_folder(folder: Path) -> Iterator[Finding]:
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        yield problem("data folder", f"{there} is not a folder", "set node.data_folder to one")
        return
    if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        yield problem("data folder", f"this user may not write to {there}", f"chown {os.getuid()} {there}")
        return
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free / 1e9:.1f} GB free" + ("" if folder.exists() else "; it will be made")
    if free < ENOUGH_DISK_BYTES:
        yield warning("data folder", text, "make room: a full disk stops writes, and markers stand still")
    else:
        yield ok("data folder", text)


def _security(configuration: Configuration) -> Iterator[Finding]:
    tls, file = server_tls(configuration), configuration.node.credentials_file
    if tls is not None:
        yield _certificate(tls)
    if file is not None:
        yield _credentials(configuration, file)
    for key, address in addresses(configuration).items():
        yield _listen(configuration, key, address)


def _certificate(tls: TLS) -> Finding:
    try:
        tls.server_options()
    except TailraceError as error:
        return problem("tls", str(error), "name files that this user can read, in PEM form")
    return ok("tls", f"certificate {tls.cert_file}")


def _credentials(configuration: Configuration, file: Path) -> Finding:
    try:
        known_credentials(configuration)
    except TailraceError as error:
        return problem("credentials", str(error), "`tailrace credential issue` makes the file")
    if file.stat().st_mode & _OTHERS:
        return warning("credentials", f"{file} may be read by other users", f"chmod 600 {file}")
    return ok("credentials", str(file))


def _listen(configuration: Configuration, key: str, address: str) -> Finding:
    try:
        safe = is_safe(configuration, address)
    except TailraceError as error:
        return problem(key, str(error), remedy_for(error))
    return ok(key, address) if safe else problem(key, f"{address} {EXPOSED}", PROTECT)
