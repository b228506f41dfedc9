"""A LangGraph checkpointer over documents."""
