"""Run `memory` as `python -m memory.cli`."""

from memory.cli.main import main

main()
