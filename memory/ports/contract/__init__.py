"""The contract: what every store must do, as tests that ship with the library and run
against anyone's adapter.

    pip install 'memory-tiers[contract]'
    pytest --pyargs memory.ports.contract --memory-harness my_package.harness:MyHarness

A harness (`memory.ports.contract.harness.Harness`) says how to make the store and what
it claims. Each capability has a test that it works where claimed and one that it is
refused where not; which of the two runs follows from the claims. Inside the contract a
skip or an xfail is a failure, and a server that does not answer is an error.
"""
