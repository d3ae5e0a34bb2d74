"""`python -m tailrace.cli` is `tailrace`."""

from tailrace.cli import main

main()
