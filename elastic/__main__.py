"""`python -m elastic`: the same as the `elastic` command."""

from elastic.cli import main

main()
