"""Every test of the contract, for a suite that imports it.

Importing replaces naming the package on the command line.

    # test_contract.py
    from memory.ports.contract.suite import *

    # the conftest.py of the whole suite
    pytest_plugins = ["memory.ports.contract.plugin"]

    # conftest.py, beside test_contract.py
    from memory.ports.contract.fixtures import harness, store
    from memory.ports.contract.plugin import add_harnesses

    def pytest_configure(config):
        add_harnesses(config, MyHarness)
"""

# ruff: noqa: F403
from memory.ports.contract.test_batches import *
from memory.ports.contract.test_building import *
from memory.ports.contract.test_cancelled import *
from memory.ports.contract.test_candidates import *
from memory.ports.contract.test_clients import *
from memory.ports.contract.test_conditions import *
from memory.ports.contract.test_conflicts import *
from memory.ports.contract.test_corners import *
from memory.ports.contract.test_damage import *
from memory.ports.contract.test_declarations import *
from memory.ports.contract.test_departures import *
from memory.ports.contract.test_due import *
from memory.ports.contract.test_erased_text import *
from memory.ports.contract.test_erasing import *
from memory.ports.contract.test_every_question import *
from memory.ports.contract.test_exact_values import *
from memory.ports.contract.test_filters import *
from memory.ports.contract.test_flags import *
from memory.ports.contract.test_forgetting import *
from memory.ports.contract.test_format_note import *
from memory.ports.contract.test_full import *
from memory.ports.contract.test_generations import *
from memory.ports.contract.test_heads import *
from memory.ports.contract.test_histories import *
from memory.ports.contract.test_isolation import *
from memory.ports.contract.test_json_paths import *
from memory.ports.contract.test_keeping import *
from memory.ports.contract.test_left import *
from memory.ports.contract.test_life import *
from memory.ports.contract.test_limits import *
from memory.ports.contract.test_meaning import *
from memory.ports.contract.test_names import *
from memory.ports.contract.test_paging import *
from memory.ports.contract.test_partitions import *
from memory.ports.contract.test_processes import *
from memory.ports.contract.test_refusals import *
from memory.ports.contract.test_round_trips import *
from memory.ports.contract.test_servers import *
from memory.ports.contract.test_sharing import *
from memory.ports.contract.test_specification import *
from memory.ports.contract.test_statistics import *
from memory.ports.contract.test_text_orders import *
from memory.ports.contract.test_under import *
from memory.ports.contract.test_upkeep import *
from memory.ports.contract.test_volumes import *
from memory.ports.contract.test_words import *
