"""Names that people guess, and the right ones; see `memory.domain.corrections`.

The guesses come from mem0, LangGraph's store, LangChain, Letta, Redis, Chroma and
pgvector, and from names that this library had before its first release. Names that
share an answer share a key, with spaces between them.
"""

from __future__ import annotations

from typing import TypeAlias

Answer: TypeAlias = tuple[str, str] | tuple[str, str, str]
"""A guessed argument's target, its example, and optionally one more sentence.

The target can be an argument (`scope`). Then the answer applies to calls that accept
it, and the example is its value. Otherwise the target is a class (`Session`), one call
(`Memory.delete`), or empty for every call, and the example is complete.
"""

PLACES = {
    "Memory": "memory",
    "Entries": "memory.entries",
    "Relations": "memory.relations",
    "ShortIds": "memory.short_ids",
    "ScopeListing": "memory.scopes",
    "Sessions": "memory.sessions",
    "Scratchpads": "memory.scratchpads",
    "Documents": "memory.documents",
    "Artifacts": "memory.artifacts",
    "Commands": "memory.commands",
    "Admin": "memory.admin",
    "LegalHolds": "memory.admin.legal_holds",
    "Session": "session",
    "Tasks": "session.tasks",
    "Runs": "session.runs",
    "ScopedMemory": "view",
    "MemoryManager": "manager",
    "Recording": "recording",
    "Tool": "tool",
    "SessionProvider": "provider",
    "BufferProvider": "provider",
    "SlidingWindowProvider": "provider",
    "SummarizingProvider": "provider",
    "SemanticProvider": "provider",
    "CompositeProvider": "provider",
    "MessageStream": "stream",
    "Filter": "Filter",
    "FieldPath": 'Filter.metadata("price")',
    "Entry": "entry",
    "FoundEntry": "hit",
    "FoundMessage": "found",
    "Message": "message",
    "HistoryItem": "item",
    "HistoryPage": "page",
    "EntryPage": "entries",
    "RelationPage": "links",
    "SessionInfo": "info",
    "Compaction": "compaction",
    "Run": "run",
    "Context": "context",
    "SearchResult": "hits",
}
"""How examples write an object of a class."""

_USER_SCOPE = ("scope", 'Scope.user("ada")')
_OF_SESSION = ("Session", 'memory.session("s1", user="ada")', "The session has its user.")
_OF_VIEW = ("ScopedMemory", 'memory.scoped(Scope.user("ada"))', "The view has its scope.")
_MESSAGE = ("message", '{"role": "user", "content": "hello"}')
_METADATA = ("filter", '{"metadata": {"kind": "recipe"}}')
_WHERE = ("filter", '{"metadata.price": {"$gt": 3}}')
_PROMOTE = ("Memory.promote", 'memory.promote(entry.id, "user:ada")')
_ERASE_USER = ("Memory.delete", 'memory.admin.erase_user("ada")')

PARTS_OF_MESSAGE = "role content tool_calls tool_call_id at"
"""Names that are guessed together, and do not stand for each other."""

ARGUMENTS: dict[str, tuple[Answer, ...]] = {
    # -- owners and scopes
    "user_id user uid userid owner owner_id customer_id actor_id": (
        _ERASE_USER,
        _USER_SCOPE,
        ("user", '"ada"'),
        _OF_SESSION,
        _OF_VIEW,
    ),
    "scope": (("Memory.delete", 'memory.admin.erase("user:ada")'), _PROMOTE, _OF_SESSION, _OF_VIEW),
    "target_scope to_scope target": (_PROMOTE,),
    "agent_id agent assistant_id bot_id": (
        ("agent", '"planner"'),
        ("scope", 'Scope.object("agent", "planner")'),
        _OF_VIEW,
    ),
    "run_id run": (("run", '"run-7"'), ("scope", 'Scope.session("s1")'), _OF_VIEW),
    "session session_id thread thread_id conversation chat_id chat conversation_id": (
        ("scope", 'Scope.session("s1")'),
        ("session_id", '"s1"'),
        _OF_VIEW,
    ),
    "namespace namespaces namespace_prefix collection collection_name index index_name table": (
        _USER_SCOPE,
        _OF_VIEW,
    ),
    "tenant tenant_id": (("", 'memory.for_tenant("acme")'),),
    "org org_id project project_id workspace workspace_id app_id": (
        ("scope", 'Scope.workspace("acme")'),
        _OF_VIEW,
    ),
    # -- contents
    "text data memory message fact document value page_content body note": (
        ("content", '"Ada likes tea"'),
        ("value", '{"theme": "dark"}'),
        _MESSAGE,
        ("query", '"what does Ada drink?"'),
    ),
    "texts documents facts memories values contents": (
        ("Memory.write", 'memory.write_many([{"content": "Ada likes tea", "scope": "user:ada"}])'),
    ),
    "messages": (
        _MESSAGE,
        ("Memory.write", 'memory.session("s1").append([{"role": "user", "content": "hello"}])'),
    ),
    PARTS_OF_MESSAGE: (
        _MESSAGE,
        ("Session.update", 'session.update("m1", content="hello")'),
        ("query", '"what does Ada drink?"'),
    ),
    "ttl expiry expire expires expires_in expiration expiration_date ex px time_to_live lifetime": (
        ("expires_at", "timedelta(hours=1)"),
        ("expires_in", "timedelta(hours=1)"),
        ("", 'memory.write("Ada likes tea", scope=Scope.user("ada"), expires_at=timedelta(hours=1))'),
    ),
    "importance priority weight salience": (
        (
            "metadata",
            '{"importance": 0.8}',
            "confidence=0.8 says how sure the writer is; promotion rules can use it.",
        ),
    ),
    "certainty probability": (("confidence", "0.8"), ("min_relevance", "0.5")),
    "tier level storage": (
        (
            "Memory",
            'memory.admin.move([entry.id], "long")',
            "A write goes to the tier that the configuration names; promotion rules move it.",
        ),
        ("to", '"long"'),
    ),
    "memory_type category kind": (
        ("type", '"user"', 'For categories of your own use tags=["recipe"].'),
        ("types", '["user"]'),
        ("filter", '{"types": ["user"]}'),
    ),
    "tag labels label categories topics keywords": (
        ("tags", '["home"]'),
        ("filter", '{"tags": ["home"]}', 'boost={"tags": ["home"]} only prefers such entries.'),
    ),
    "meta extra attributes properties payload metadatas props additional_kwargs": (
        ("metadata", '{"kind": "recipe"}'),
        _METADATA,
    ),
    "id ids memory_id doc_id document_id uuid": (
        ("entry_id", "entry.id"),
        ("entry_ids", "[entry.id]"),
        ("message_id", '"m1"'),
        ("task_id", '"t1"'),
        ("run_id", '"r1"'),
        ("session_id", '"s1"'),
        ("key", '"note-1"'),
    ),
    "key name_key idempotency_key": (
        ("key", '"note-1"'),
        ("entry_id", "entry.id"),
        ("entry_ids", "[entry.id]"),
        _ERASE_USER,
    ),
    "message_id": (("id", '"m1"'),),
    "message_ids": (("ids", '["m1"]'),),
    "include_summary include_summaries": (("summaries", "False"),),
    "sequence_start": (("first", "1"),),
    "sequence_end": (("last", "9"),),
    "timestamp created time date datetime": (
        ("created_at", '"2026-01-31T09:30:00Z"'),
        ("message", '{"role": "user", "content": "hello", "at": "2026-01-31T09:30:00Z"}'),
        ("since", '"2026-01-31T09:30:00Z"'),
    ),
    "infer embed extract": (
        (
            "",
            'memory.write("Ada likes tea", scope=Scope.user("ada"))',
            "write stores the text as it is; a MemoryManager makes entries from messages.",
        ),
    ),
    "embedding embeddings vector vectors query_vector query_embedding query_embeddings": (
        ("vector", "[0.1, 0.2]"),
        ("", "Memory(embedder=embed)", "The embedder of the memory makes the vectors."),
    ),
    "supersede replaces supersedes_id updates": (("supersedes", "old.id"),),
    "on_conflict upsert overwrite replace exist_ok": (("if_exists", '"replace"', "It needs a key."),),
    "dedupe deduplicate check check_conflicts": (("detect_conflicts", "True"),),
    "decide on_duplicate resolver": (("resolve", "choose"),),
    "wait sync durable wait_for": (("consistency", '"replicated"'),),
    # -- queries
    "query_text query_texts question q prompt search_query": (("query", '"what does Ada drink?"'),),
    "k top_k topk n n_results num_results max_results size count top page_size top_n": (
        ("limit", "5"),
        ("last", "5"),
        ("times", "5"),
    ),
    "limit": (
        ("last", "5", "budget=4_000 limits the tokens."),
        ("budget", "4_000"),
        ("most", "40"),
        ("entries", "10_000"),
        ("count", "200"),
        ("max_entries", "5"),
        ("max_tokens", "8_000"),
    ),
    "max_entries max_items maximum max_size max_count": (("entries", "10_000"), ("count", "200")),
    "max_messages max_turns": (("most", "40"),),
    "max_tokens token_limit tokens token_budget max_token_limit max_context": (
        ("budget", "4_000"),
        ("max_tokens", "8_000"),
    ),
    "days hours minutes seconds duration age": (("length", '"7d"'), ("older_than", '"7d"')),
    "min_confidence at_least minimum": (("least", "0.8"),),
    "from_tier from_ source_tier": (("source", '"short"'),),
    "to_tier dest destination target_tier": (("target", '"long"'),),
    "condition conditions if_ rule": (("when", "OlderThan('7d')"),),
    "args input parameters function_arguments": (("arguments", '\'{"city": "Porto"}\''),),
    "offset skip page start_after": (("cursor", "page.cursor"),),
    "where filters metadata_filter metadata_filters query_filter filter_dict search_filter expr": (
        _WHERE,
        ("metadata", '{"kind": "recipe"}'),
    ),
    "filter": (("metadata", '{"kind": "recipe"}'), ("tags", '["home"]')),
    "metadata": (_METADATA,),
    "types tags type only": (
        ("filter", '{"types": ["user"], "tags": ["home"]}', "boost= takes the same and only prefers."),
        ("type", '"user"'),
        ("types", '["user"]'),
    ),
    "threshold score_threshold min_score similarity_threshold min_similarity relevance cutoff distance": (
        ("min_relevance", "0.5"),
    ),
    "by search_type hybrid method alpha": (("mode", '"hybrid"'),),
    "start from_date start_date created_after after": (("since", '"2026-01-31T00:00:00Z"'),),
    "end to_date end_date created_before until before": (
        ("before", '"2026-01-31T00:00:00Z"'),
        ("until", '"2026-01-31T00:00:00Z"'),
        ("filter", '{"before": "2026-01-31T00:00:00Z"}'),
    ),
    "order_by sort sort_by": (("order", '"newest"'),),
    "with_payload output_fields select return_properties": (("include", '["content", "metadata"]'),),
    "refresh_ttl refresh sliding touch": (("refresh_on_read", "True"),),
    "retired superseded include_superseded include_deleted": (("include_retired", "True"),),
    # -- sessions and memories
    "system_prompt system_message instructions": (("system", '"You are a helpful assistant."'),),
    "summarizer summarize callback llm model fn summary": (
        ("summarise", 'lambda messages: "They talked about tea."'),
        ("callback", 'lambda entries: "Ada likes tea."'),
        ("advisor", "ask_model"),
    ),
    "summarise": (("callback", 'lambda entries: "Ada likes tea."'),),
    "keep keep_recent keep_last_n": (("keep_last", "2"),),
    "onward": (("on_window_exit", "make_entries"),),
    "url uri dsn path database db db_url database_url connection_string": (
        ("config", '"sqlite:///notes.db"'),
    ),
    "embedding_function embedding_model embedder_model": (("embedder", "embed"),),
    "api_key openai_api_key chat_model": (
        ("advisor", "ask_model", "The memory calls your function; it needs no key."),
    ),
}
"""Arguments."""

_WRITE = 'memory.write("Ada likes tea", scope=Scope.user("ada"))'
_SEARCH = 'memory.search("what does Ada drink?", scope=Scope.user("ada"), limit=5)'
_SESSION = 'memory.session("s1", user="ada")'
_APPEND = 'session.append({"role": "user", "content": "hello"})'

ATTRIBUTES: dict[str, dict[str, str]] = {
    "Memory": {
        "add insert store save create put set upsert remember_fact add_memory add_text memorize": _WRITE,
        "remember": 'memory.write_with_report("Ada likes tea", scope=Scope.user("ada"))',
        "add_texts add_documents add_memories add_many put_many batch": (
            'memory.write_many([{"content": "Ada likes tea", "scope": "user:ada"}])'
        ),
        "forget delete_all delete_user reset": 'memory.admin.erase_user("ada")',
        "clear delete_scope delete_namespace delete_by_scope": 'memory.admin.erase("user:ada")',
        "remove": "memory.delete(entry.id)",
        "delete_many delete_where delete_by_filter delete_entities": (
            'memory.entries.delete_many({"metadata.kind": "draft"})'
        ),
        "count len size": "memory.admin.stats()",
        "list get_all all get_memories fetch items": 'memory.retrieve(Scope.user("ada"))',
        "iter scan keys": "memory.browse()",
        "supersede replace": 'memory.write("Ada likes coffee", scope=Scope.user("ada"), supersedes=old.id)',
        "edit modify patch": 'memory.update(entry.id, content="Ada likes coffee")',
        "versions get_history": "memory.entries.history(entry.id)",
        "query ask find recall similarity_search search_memories search_memory semantic_search": _SEARCH,
        "similarity_search_with_score as_retriever retriever": _SEARCH,
        "chat conversation thread get_session create_session new_session start_session": _SESSION,
        "add_message add_messages add_user_message append": (
            'memory.session("s1").append({"role": "user", "content": "hello"})'
        ),
        "messages get_messages": 'memory.session("s1").context()',
        "for_user user scope namespace with_scope": 'memory.scoped(Scope.user("ada"))',
        "summarize summarise": (
            'memory.session("s1").compact(lambda messages: "They talked about tea.", keep_last=2)'
        ),
        "get_entry get_by_id read_entry exists has": "memory.get(entry.id)",
        "list_sessions query_sessions get_sessions": "memory.sessions.list()",
        "end_session close_session": 'memory.sessions.end("s1")',
        "delete_session remove_session": 'memory.sessions.delete("s1")',
        "connect start initialize setup wait_for_initialization": "memory.open()",
        "disconnect stop shutdown dispose": "memory.close()",
        "numbers": "memory.short_ids",
    },
    "ScopedMemory": {
        "add insert store save create put set upsert add_memory memorize": 'view.write("Ada likes tea")',
        "remember": 'view.write_with_report("Ada likes tea")',
        "list get_all all items": "view.retrieve()",
        "query ask find recall similarity_search": 'view.search("what does Ada drink?", limit=5)',
        "forget clear delete_all": "view.erase()",
        "remove": "view.delete(entry.id)",
        "supersede replace": 'view.write("Ada likes coffee", supersedes=old.id)',
    },
    "Session": {
        "add add_message add_messages add_user_message add_ai_message write send push put save"
        " append_message": _APPEND,
        "messages get_messages get get_context load context_window": "session.context()",
        "list all get_history get_full_history transcript": "session.history()",
        "summarize summarise compress": (
            'session.compact(lambda messages: "They talked about tea.", keep_last=2)'
        ),
        "close finish stop end_session": "session.end()",
        "reset delete_messages clear_context": "session.clear()",
        "remove remove_message delete_message": 'session.exclude("m1")',
        "include unexclude": 'session.restore("m1")',
        "undo rollback": "session.roll_back(checkpoint)",
        "branch": "session.fork()",
        "status user title metadata created_at message_count total_messages is_active": "session.info()",
        "rename set_title set_metadata": 'memory.sessions.update("s1", title="Boats")',
        "add_task create_task save_task": 'session.tasks.save("t1", title="Book a table")',
        "list_tasks get_tasks": "session.tasks.list()",
        "edit edit_message update_message": 'session.update("m1", content="hello")',
        "open create start": _APPEND,
        "said_in": "memory.entries.source_messages(entry.id)",
    },
    "Entries": {
        "all": "memory.browse(include_retired=True)",
        "list get_all retrieve": 'memory.retrieve(Scope.user("ada"))',
        "said_in": "memory.entries.source_messages(entry.id)",
        "versions": "memory.entries.history(entry.id)",
        "add create": _WRITE,
        "delete delete_where delete_all": 'memory.entries.delete_many({"metadata.kind": "draft"})',
        "filter where find": 'memory.browse(filter={"metadata.price": {"$gt": 3}})',
        "expire retire": "memory.entries.invalidate(entry.id)",
    },
    "Sessions": {
        "open session": _SESSION,
        "append add": 'memory.session("s1").append({"role": "user", "content": "hello"})',
        "erase remove": 'memory.sessions.delete("s1")',
        "find query query_sessions all": "memory.sessions.list()",
        "search": 'memory.search_messages("tea")',
        "close": 'memory.sessions.end("s1")',
        "rename": 'memory.sessions.update("s1", title="Boats")',
    },
    "Tasks": {
        "add create update set_status complete": (
            'session.tasks.save("t1", title="Book a table", status="completed")'
        ),
        "all get_all find query": "session.tasks.list()",
        "remove": 'session.tasks.delete("t1")',
        "clear": "session.tasks.replace_all([])",
    },
    "Runs": {
        "add create update start finish complete": (
            'session.runs.save("r1", child_id="s1/search", status="completed")'
        ),
        "all get_all find query": "session.runs.list()",
        "remove": 'session.runs.delete("r1")',
    },
    "Admin": {
        "distrust": 'memory.admin.block_source(source="web:example.com", reason="spam")',
        "trust": 'memory.admin.unblock_source(source="web:example.com")',
        "roll_back rollback revert": 'memory.admin.revert_source(source="web:example.com")',
        "distrusted": "memory.admin.blocked_sources()",
        "hold": 'memory.admin.legal_holds.add("case-7", reason="litigation", user="ada")',
        "release_hold": 'memory.admin.legal_holds.remove("case-7")',
        "holds": "memory.admin.legal_holds.list()",
        "forget forget_user delete_user remove_user": 'memory.admin.erase_user("ada")',
        "forget_tenant delete_tenant remove_tenant": 'memory.for_tenant("acme").admin.erase_tenant()',
        "delete delete_all forget_scope delete_scope": 'memory.admin.erase("user:ada")',
        "load restore": 'memory.admin.import_("all.jsonl")',
        "dump": "memory.admin.export()",
        "health status": "memory.admin.check()",
        "count": "memory.admin.stats()",
    },
    "Context": {
        "to_openai openai as_openai": 'context.to("openai")',
        "to_anthropic anthropic as_anthropic": 'context.to("anthropic")',
        "to_langchain langchain as_langchain": 'context.to("langchain")',
        "to_messages as_messages history int slice": "context.messages",
        "token_count n_tokens total tokens_total": "context.total_tokens",
        "text": "context.messages",
        "dropped truncated": "context.left_out",
    },
    "Entry": {
        "text memory page_content value fact body": "entry.content",
        "entry_id memory_id uuid": "entry.id",
        "timestamp created": "entry.created_at",
        "updated": "entry.updated_at",
        "kind category memory_type": "entry.type",
        "user user_id owner": "entry.scope",
        "score relevance": "hit.relevance",
        "importance": "entry.confidence",
        "delete": "memory.delete(entry.id)",
        "update": 'memory.update(entry.id, content="Ada likes coffee")',
        "history": "memory.entries.history(entry.id)",
        "ttl": "entry.expires_at",
    },
    "FoundEntry": {
        "text memory page_content value document": "hit.content",
        "key entry_id": "hit.id",
        "similarity distance rank": "hit.relevance",
        "metadata": "hit.entry.metadata",
        "tags": "hit.entry.tags",
        "type": "hit.entry.type",
        "scope": "hit.entry.scope",
        "title": "hit.entry.title",
        "created_at": "hit.entry.created_at",
        "message": "hit.entry",
    },
    "Filter": {
        "and_ all all_of And must": "(Filter.metadata('price') > 3) & (Filter.field('type') == 'user')",
        "or_ any any_of Or should": "(Filter.metadata('price') > 3) | (Filter.field('type') == 'user')",
        "not_ Not must_not": "~(Filter.metadata('price') > 3)",
    },
    "FieldPath": {
        "eq equals": "Filter.metadata('kind') == 'recipe'",
        "ne not_equals": "Filter.metadata('kind') != 'recipe'",
        "gt gte lt lte ge le between": "Filter.metadata('price') > 3",
        "isin is_in one_of any_of among": "Filter.metadata('kind').in_(['recipe', 'menu'])",
        "notin not_in nin": "~Filter.metadata('kind').in_(['recipe', 'menu'])",
        "has includes any": "Filter.field('tags').contains('home')",
        "is_null isnull is_none": "~Filter.metadata('kind').exists()",
    },
    "FoundMessage": {
        "text": "found.content",
        "role": "found.message.role",
        "entry": "found.message",
        "similarity distance rank": "found.relevance",
        "metadata": "found.message.metadata",
    },
    "Message": {
        "type": "message.role",
        "created_at timestamp time": "message.at",
        "parts": "message.content",
        "additional_kwargs": "message.extra",
        "to_dict": "message.model_dump()",
    },
    "HistoryItem": {
        "content text": "item.message.text",
        "role": "item.message.role",
        "id": "item.message.id",
        "sequence seq position index": "item.number",
        "excluded_reason excluded_from_context": "item.excluded",
        "timestamp at": "item.created_at",
    },
    "HistoryPage": {"messages": "page.items", "next_cursor next_page": "page.cursor"},
    "EntryPage": {
        "items entries results": "entries[0]",
        "next_cursor next_page": "entries.cursor",
    },
    "RelationPage": {
        "relations items edges results": "links[0]",
        "next_cursor next_page": "links.cursor",
    },
    "SessionInfo": {
        "total_messages messages": "info.message_count",
        "session_id": "info.id",
        "owner": "info.user",
        "last_activity": "info.updated_at",
    },
    "Compaction": {
        "summary_id summary_message_id": "compaction.summary.id",
        "archived_message_ids": "compaction.archived_ids",
        "record_id": "compaction.id",
        "text": "compaction.summary.text",
        "before": "compaction.messages_before",
        "after": "compaction.messages_after",
    },
    "Run": {
        "child_session_id": "run.child_id",
        "parent_session_id parent_id": "run.session_id",
        "messages": "run.message_count",
        "run_id": "run.id",
    },
    "SearchResult": {"results hits items matches entries": "hits[0]", "documents": "hits[0].content"},
}
"""Attributes and methods, by the class that lacks them."""

NAMES = {
    "AsyncMemory MemoryClient AsyncMemoryClient Client": "Memory",
    "SyncMemory MemorySync": "BlockingMemory",
    "MemoryStore Store BaseStore InMemoryStore": "Memory",
    "MemoryEntry Record Item Document": "Entry",
    "ChatMessage HumanMessage AIMessage": "Message",
    "Config Settings": "MemoryConfig",
    "given_as": 'context.to("openai")',
}
"""Names that `memory` does not export."""

CALLS = {
    "Memory.write": _WRITE,
    "Memory.search": _SEARCH,
    "Memory.session": _SESSION,
    "Memory.retrieve": 'memory.retrieve(Scope.user("ada"))',
    "Memory.update": 'memory.update(entry.id, content="Ada likes coffee")',
    "ScopedMemory.write": 'view.write("Ada likes tea", tags=["drink"])',
    "ScopedMemory.search": 'view.search("what does Ada drink?", limit=5)',
    "Memory.promote": _PROMOTE[1],
    "Memory.compact": 'memory.compact([entry.id, old.id], lambda entries: "Ada likes tea.")',
    "Admin.erase": 'memory.admin.erase("user:ada")',
    "Session.append": _APPEND,
    "Session.update": 'session.update("m1", content="hello")',
    "Session.compact": 'session.compact(lambda messages: "They talked about tea.", keep_last=2)',
}
"""Complete calls, for errors about missing arguments or too many by position."""

VALUES: dict[str, dict[str, str]] = {
    "mode": {
        "keyword keywords words bm25 fulltext text sparse": "lexical",
        "vector meaning similarity dense embedding": "semantic",
        "both mixed fusion": "hybrid",
    },
    "if_exists": {
        "refuse fail raise": "error",
        "overwrite upsert": "replace",
        "ignore skip": "keep",
        "merge patch": "update",
    },
    "include": {
        "document documents text page_content body": "content",
        "metadatas meta payload": "metadata",
        "value values": "data",
    },
    "order": {"desc descending latest": "newest", "asc ascending": "oldest"},
    "role": {"human": "user", "ai bot model": "assistant", "developer": "system", "function": "tool"},
}
"""Values, by their argument."""

VALUE_NOTES = {
    "type": (
        "user: about the person; feedback: what they think of the work; project: the work itself; reference:"
        " where to look things up; learning: what was found out; context, the default: anything else. For"
        ' categories of your own use tags, such as tags=["fact"].'
    )
}
"""Explanations of an argument's values, for errors about other values."""

SETTINGS = {
    "ttl default_ttl expiry": "Pass expires_at=timedelta(hours=1) to write, or add a [[retention]] rule.",
    "user_id user agent_id run_id scope session_id namespace": (
        "Pass scope=Scope.user('ada') to each call, or use memory.scoped('user:ada')."
    ),
    "url uri dsn path database db db_url database_url connection_string store": (
        "Pass it as the first argument, Memory('sqlite:///notes.db'), or as [stores.main] url = '…'."
    ),
    "embedding embeddings embedding_function embedding_model": "The setting is embedder.",
    "llm model chat_model api_key openai_api_key": (
        "Pass your function as advisor: Memory(advisor=ask_model)."
    ),
    "onward": "The argument is on_window_exit.",
    "memory": "Write settings at the top of the file, without a section [memory].",
    "top_k k limit threshold": "Pass limit= or min_relevance= to search.",
    "vector_store vectorstore backend": (
        "A store is a URL under [stores.NAME]; [tiers] says which tier it holds."
    ),
}
"""Settings: keys at the top of `memory.toml`, and keyword arguments of `Memory`."""
