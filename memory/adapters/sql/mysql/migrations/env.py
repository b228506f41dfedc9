"""Alembic's way in: runs on the connection that `migrate` hands over, under the lock that it holds."""

from __future__ import annotations

from alembic import context

from memory.adapters.sql.mysql.migrate import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE, transactional_ddl=False)
context.run_migrations()
