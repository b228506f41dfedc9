"""Run `memory` as `python -m memory`."""

from memory.cli.main import main

main()
