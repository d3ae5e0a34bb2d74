"""`tailrace run`: one role in this process, or a process for each role that the configuration names.

In the one-machine default store and publisher share a process. With a configuration file each role is a child, started
and watched by this process; their output is passed on with the role's name before it, and each one's `ready` line comes
out on stdout as the child wrote it. A child that ends with code 2 said that starting it again makes no sense.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, Literal, cast

import typer

from tailrace.cli.configuration import Configuration, find_configuration, with_changes
from tailrace.cli.environment import read_environment
from tailrace.cli.output import note, say
from tailrace.cli.ports import settled
from tailrace.cli.roles.security import require_safe
from tailrace.errors import ConfigInvalid
from tailrace.runtime.logging import configure

RoleName = Literal["store", "publisher", "node"]

READY: Final = "ready "
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RunOptions:
    role: str | None
    config: Path | None
    data_folder: Path | None
    listen: str | None
    health: str | None


def run_roles(options: RunOptions) -> None:
    configuration, file = find_configuration(options.config)
    roles = [cast(RoleName, options.role)] if options.role else roles_of(configuration, file)
    configuration = overridden(configuration, options, roles)
    require_safe(configuration, roles)
    environment = read_environment()
    secrets = [environment.credential] if environment.credential else []
    if len(roles) == 1:
        configure(level=environment.log_level, form=environment.log_form, role=roles[0], secrets=secrets)
        configuration = with_ports(configuration)
        from tailrace.cli.roles.process import run_role

        code = run_role(roles[0], configuration)
    else:
        if options.listen or options.health:
            raise ConfigInvalid(
                path="--listen", reason=f"with several roles ({', '.join(roles)}) it needs --role as well"
            )
        configure(level=environment.log_level, form=environment.log_form, role="run", secrets=secrets)
        assert file is not None
        code = supervise(roles, file, options.data_folder)
    raise typer.Exit(code)


def roles_of(configuration: Configuration, file: Path | None) -> list[RoleName]:
    """One process for everything without a file; else one for each role that has something to do."""
    if file is None:
        return ["node"]
    roles: list[RoleName] = []
    if configuration.store is not None:
        roles.append("store")
    if configuration.dataset:
        roles.append("publisher")
    if not roles:
        raise ConfigInvalid(path="dataset", reason=f"is missing in {file}: there is nothing to run")
    return roles


def overridden(configuration: Configuration, options: RunOptions, roles: list[RoleName]) -> Configuration:
    """The configuration with what the command line says instead of it."""
    node, store = configuration.node, configuration.store
    if options.data_folder is not None:
        node = with_changes(node, {"data_folder": options.data_folder})
    changes = {"listen": options.listen, "health_listen": options.health}
    changes = {name: value for name, value in changes.items() if value is not None}
    if roles == ["store"] and store is not None:
        store = with_changes(store, changes)
    else:
        together = store is not None and store.listen == node.listen
        node = with_changes(node, changes)
        if store is not None and together:
            store = with_changes(store, {"listen": node.listen})
    return with_changes(configuration, {"node": node, "store": store})


def with_ports(configuration: Configuration) -> Configuration:
    """Port 0 replaced by a free one wherever a role listens."""
    node, store = configuration.node, configuration.store
    together = store is not None and store.listen == node.listen
    node = with_changes(node, {"listen": settled(node.listen)})
    if store is not None:
        store = with_changes(store, {"listen": node.listen if together else settled(store.listen)})
    return with_changes(configuration, {"node": node, "store": store})


def supervise(roles: list[RoleName], file: Path, data_folder: Path | None) -> int:
    """Runs a child for each role until a signal comes or one of them is given up."""
    from tailrace.runtime.processes import Child, Supervisor
    from tailrace.runtime.tasks import drain_on_signals

    more = ["--data", str(data_folder)] if data_folder else []
    command = [sys.executable, "-m", "tailrace.cli", "run", "--config", str(file), *more]
    children = [Child(role, [*command, "--role", role], output=pass_on) for role in roles]
    stop = Event()
    with drain_on_signals(stop), Supervisor(children) as supervisor:
        while not stop.wait(_LOOK_S):
            supervisor.raise_failure()
    return 0


def pass_on(name: str, line: str) -> None:
    if line.startswith(READY):
        say(line)
    else:
        note(f"{name:>12} | {line}")
