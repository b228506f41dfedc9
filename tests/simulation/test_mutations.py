"""Every mutation of the engine finds the text that it changes."""

from __future__ import annotations

from memory.ports.contract.cells import cells
from tests.simulation.conditional import mutations as conditional
from tests.simulation.erasing import mutations as erasing
from tests.simulation.extracting import mutations as extracting
from tests.simulation.keeping import mutations as keeping
from tests.simulation.linking import mutations as linking
from tests.simulation.noting import mutations as noting
from tests.simulation.rules import mutations as rules
from tests.simulation.sessions import copies
from tests.simulation.sessions import mutations as sessions
from tests.simulation.superseding import mutations as superseding
from tests.simulation.uploading import mutations as uploading

MUTATIONS = {
    f"{judge.__name__}: {name}": mutation
    for judge in (
        conditional,
        copies,
        erasing,
        extracting,
        keeping,
        linking,
        noting,
        rules,
        sessions,
        superseding,
        uploading,
    )
    for name, mutation in judge.MUTATIONS.items()
}


@cells("mutation", sorted(MUTATIONS), shared=True)
def test_a_mutation_still_finds_what_it_changes(mutation: str) -> None:
    with MUTATIONS[mutation].applied():
        pass
