"""A LangGraph store over entries."""
