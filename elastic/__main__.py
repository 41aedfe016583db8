"""`python -m elastic`: the same as the `elastic` command."""

from elastic.entry import main

main()
