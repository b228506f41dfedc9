"""`python -m memory.cli` is `memory`."""

from memory.cli.main import main

main()
