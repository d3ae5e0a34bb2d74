"""Commands with sub-commands: `dead` and `credential`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.cli.options import Address, CaFile, Config, CredentialFile, Dataset, Json
from tailrace.cli.reach import ReachOptions

dead_app = typer.Typer(
    help="Dead letters: updates that an application could not process and that its policy put aside.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
credential_app = typer.Typer(
    help="Credentials: who may subscribe, read, write and administer.", no_args_is_help=True, rich_markup_mode=None
)

MAX_LETTER: Final = 2**63 - 1  # the ledger's numbers have no more bits

Application = Annotated[str, typer.Argument(help="The application.")]


@dead_app.command("list")
def dead_list(
    application: Application,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show so many, oldest first.")] = 100,
    as_json: Json = False,
    dataset: Dataset = None,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """List an application's dead letters, oldest first.

    \b
    tailrace dead list cache
    """
    from tailrace.cli.dead import list_letters

    list_letters(application, dataset, limit, ReachOptions(config, address, None, credential_file, ca_file), as_json)


@dead_app.command("show")
def dead_show(
    application: Application,
    letter: Annotated[int, typer.Argument(min=1, max=MAX_LETTER, help="Its number, as `list` shows it.")],
    as_json: Json = False,
    dataset: Dataset = None,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Show one dead letter whole: the error, and the update with its pairs.

    \b
    tailrace dead show cache 17
    """
    from tailrace.cli.dead import show_letter

    show_letter(application, dataset, letter, ReachOptions(config, address, None, credential_file, ca_file), as_json)


@dead_app.command("retry")
def dead_retry(
    application: Application,
    letters: Annotated[
        list[int] | None, typer.Argument(min=1, max=MAX_LETTER, help="Their numbers; see also --all.")
    ] = None,
    all_letters: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    dataset: Dataset = None,
    address: Address = None,
    config: Config = None,
    credential_file: CredentialFile = None,
    ca_file: CaFile = None,
) -> None:
    """Hand dead letters to the application again; what fails once more stays a dead letter.

    \b
    tailrace dead retry cache 17 18
    tailrace dead retry cache --all
    """
    from tailrace.cli.dead import retry_letters

    if bool(letters) == all_letters:
        raise typer.BadParameter("name letters by their numbers, or give --all")
    where = ReachOptions(config, address, None, credential_file, ca_file)
    retry_letters(application, dataset, None if all_letters else letters, where)


CredentialsFile = Annotated[
    Path | None,
    typer.Option("--file", help="The credentials file; else node.credentials_file of the configuration."),
]


@credential_app.command("issue")
def credential_issue(
    name: Annotated[str, typer.Argument(help="Whose it is; shown in logs and refusals.")],
    allow: Annotated[
        list[str],
        typer.Option("--allow", metavar="ACTION", help="subscribe, read, write or admin; may be repeated."),
    ],
    datasets: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Only on this dataset; may be repeated.")
    ] = None,
    applications: Annotated[
        list[str] | None, typer.Option("--application", help="Only for this application; may be repeated.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="A new token for a name that exists.")] = False,
    file: CredentialsFile = None,
    config: Config = None,
) -> None:
    """Make a credential and print its token, which is kept nowhere else. Servers know it at once.

    \b
    tailrace credential issue cache --allow subscribe --allow read --dataset shop --application cache
    tailrace credential issue operator --allow read --allow admin --file credentials.json
    """
    from tailrace.cli.credentials import issue

    issue(name, tuple(allow), tuple(datasets or ()), tuple(applications or ()), replace, file, config)


@credential_app.command("list")
def credential_list(file: CredentialsFile = None, as_json: Json = False, config: Config = None) -> None:
    """List the credentials and what each may do.

    \b
    tailrace credential list --file credentials.json
    """
    from tailrace.cli.credentials import show_all

    show_all(file, config, as_json)


@credential_app.command("revoke")
def credential_revoke(
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    file: CredentialsFile = None,
    config: Config = None,
) -> None:
    """Remove a credential. Servers refuse it from its next call on.

    \b
    tailrace credential revoke cache --file credentials.json
    """
    from tailrace.cli.credentials import revoke

    revoke(name, file, config)
