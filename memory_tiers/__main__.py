"""`python -m memory_tiers`: the `memory` command, also where a `memory.py` in the
current directory takes `python -m memory` for itself.
"""

from memory_tiers import main

main()
