"""The conformance suite of the Model Context Protocol against the server of this
library, with the fixtures that the suite asks for.
"""
