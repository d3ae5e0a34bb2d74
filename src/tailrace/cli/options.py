"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="TAILRACE_CONFIG", help="Configuration file; else ./tailrace.toml, else the default."
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--address", "-a", envvar="TAILRACE_ADDRESS", metavar="HOST:PORT", help="The publisher to ask."),
]
StoreAddress = Annotated[
    str | None,
    typer.Option("--store", envvar="TAILRACE_STORE", metavar="HOST:PORT", help="The store to write to."),
]
CredentialFile = Annotated[
    Path | None,
    typer.Option(
        "--credential-file",
        envvar="TAILRACE_CREDENTIAL_FILE",
        help="File that holds the token to show (or set TAILRACE_CREDENTIAL to the token).",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", envvar="TAILRACE_CA_FILE", help="Certificate authority of a server with TLS (PEM)."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]
Dataset = Annotated[str | None, typer.Option("--dataset", "-d", help="The dataset, if there are several.")]
