"""The contract: the tests that every store must pass, shipped with the library.

They run against any adapter:

    pip install 'memory-tiers[contract]'
    pytest --pyargs memory.ports.contract --memory-harness my_package.harness:MyHarness

A harness (`memory.ports.contract.harness.Harness`) makes the store and states its
claims. Each capability has one test that it works if claimed, and one that it is
refused if not. The claims decide which of the two runs. Inside the contract a skip or
an xfail is a failure, and a server that does not answer is an error.
"""
