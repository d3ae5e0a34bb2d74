"""The commands, their options and their help. What they do stands in the module that each one loads when it runs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.groups import credential_app, dead_app
from tailrace.cli.options import Address, CaFile, Config, CredentialFile, Dataset, Json, StoreAddress
from tailrace.cli.reach import ReachOptions
from tailrace.cli.trials import bench, demo, torture

ABOUT = """Every committed write of a datastore reaches everything that depends on it: in order, at least once.

Start one machine's worth and look around:

\b
    tailrace run                                      # an embedded store and its publisher
    tailrace put users alice name=Alice city=Oslo     # a write
    tailrace tail demo --filter "table = 'users'"     # every committed write, as it happens
    tailrace status --watch                           # who is behind, and why
"""

app = typer.Typer(
    help=ABOUT,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


class Role(enum.StrEnum):
    STORE = "store"
    PUBLISHER = "publisher"
    NODE = "node"


@app.command()
def run(
    role: Annotated[Role | None, typer.Option(help="Run this role alone, in this process.")] = None,
    config: Config = None,
    data_folder: Annotated[Path | None, typer.Option("--data", help="Data folder, instead of the configured.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen there, instead of the configured.")
    ] = None,
    health: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Health port, likewise (port 0: any).")
    ] = None,
) -> None:
    """Run this node: the store, the publisher, or both.

    Without a configuration file: an embedded store (dataset 'demo') and its publisher in one process, on
    127.0.0.1:7400, with all data in ./tailrace-data. With one: a process for each configured role, watched and
    started again when it dies. SIGTERM or Ctrl-C drains; a second one ends at once.

    \b
    tailrace run
    tailrace run --data /tmp/try --listen 127.0.0.1:7500
    tailrace run --config tailrace.toml
    tailrace run --config tailrace.toml --role publisher
    """
    from tailrace.cli.running import RunOptions, run_roles

    run_roles(RunOptions(role.value if role else None, config, data_folder, listen, health))


@app.command()
def check(
    config: Config = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the configuration's JSON Schema and stop.")] = False,
    data_folder: Annotated[Path | None, typer.Option("--data", help="Data folder, instead of the configured.")] = None,
) -> None:
    """Look at the configuration and at what it names, and say what to do about each problem.

    Reads the whole configuration, looks whether each source can be opened and still holds what applications need,
    and whether folders, certificates and credentials are as they should be. Exit code 1 if there is a problem.

    \b
    tailrace check
    tailrace check --config tailrace.toml
    tailrace check --schema > tailrace.schema.json     # for editors that complete TOML
    """
    from tailrace.cli.checking import check_node, print_schema

    if schema:
        print_schema()
    else:
        check_node(config, data_folder)


@app.command()
def tail(
    dataset: Annotated[str, typer.Argument(help="A dataset's name, or tailrace://host:port/dataset.")],
    filter: Annotated[
        str | None, typer.Option("--filter", "-f", help="Only updates that pass; see the examples.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, an age like -5m, or line@era:sequence:index.")
    ] = "latest",
    until: Annotated[
        str | None, typer.Option(help="'head': stop at what is the newest update now; or a position.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many updates.")] = None,
    as_json: Json = False,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Print a dataset's updates as they are committed, or those of some time ago.

    \b
    tailrace tail demo
    tailrace tail demo --filter "table = 'users' AND NOT name MATCHES '^tmp_'"
    tailrace tail demo --filter "topic = 'aq' OR EXISTS mcd" --from earliest --until head
    tailrace tail demo --from -5m --json | jq .pairs
    tailrace tail demo --from demo@1:1042:0 --limit 10
    """
    from tailrace.cli.tailing import TailOptions, tail_dataset

    options = TailOptions(dataset, filter, start, until, limit, as_json)
    tail_dataset(options, ReachOptions(config, address, None, credential_file, ca_file))


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C.")] = False,
    as_json: Json = False,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Show each dataset's log and each application: where it stands, how far behind, and why.

    \b
    tailrace status
    tailrace status --watch
    tailrace status --json | jq '.applications[] | select(.state != "live")'
    """
    from tailrace.cli.looking import show_status

    show_status(ReachOptions(config, address, None, credential_file, ca_file), watch=watch, as_json=as_json)


@app.command()
def put(
    table: Annotated[str, typer.Argument(help="The table; it is made by the first write to it.")],
    key: Annotated[
        str | None, typer.Argument(help="The key. Left out: JSON lines are read from standard input.")
    ] = None,
    pairs: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="The values.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the key instead.")] = False,
    wait: Annotated[
        str | None, typer.Option(metavar="APPLICATION", help="Return once this application has processed the write.")
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait with --wait.")] = 30.0,
    dataset: Dataset = None,
    store: StoreAddress = None,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Write to the embedded store, and print the position of the write once it is durable.

    \b
    tailrace put users alice name=Alice city=Oslo
    tailrace put users alice --delete
    tailrace put users alice name=Alicia --wait invalidator
    echo '{"key": "bob", "pairs": {"name": "Bob"}}' | tailrace put users
    echo '{"key": "bob", "delete": true}' | tailrace put users
    """
    from tailrace.cli.writing import PutOptions, put_lines, put_one

    options = PutOptions(table, key, tuple(pairs or ()), delete, wait, timeout_s, dataset)
    where = ReachOptions(config, address, store, credential_file, ca_file)
    if key is None:
        put_lines(options, where)
    else:
        put_one(options, where)


@app.command()
def reached(
    application: Annotated[str, typer.Argument(help="The application.")],
    position: Annotated[str, typer.Argument(help="line@era:sequence:index, as `tailrace put` prints it.")],
    wait_s: Annotated[float, typer.Option("--wait", metavar="SECONDS", help="Wait so long for it.")] = 0.0,
    dataset: Dataset = None,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Has this application processed that write? Exit code 0 if so, 1 if not (yet).

    \b
    tailrace reached invalidator demo@1:1042:0
    tailrace reached invalidator demo@1:1042:0 --wait 10 && echo fresh
    """
    from tailrace.cli.reaching import ask_reached

    ask_reached(application, position, dataset, wait_s, ReachOptions(config, address, None, credential_file, ca_file))


@app.command()
def version() -> None:
    """Print the versions of Tailrace, of its protocol and of what it stands on."""
    from tailrace.cli.versions import print_versions

    print_versions()


app.add_typer(dead_app, name="dead")
app.add_typer(credential_app, name="credential")
app.command("bench")(bench)
app.command("torture")(torture)
app.command("demo")(demo)
