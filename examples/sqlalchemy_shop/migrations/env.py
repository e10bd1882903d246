"""How Alembic connects, and which models it compares."""

import os

import models
from alembic import context
from sqlalchemy import create_engine

import idivm.alembic  # noqa: F401 - brings op.create_maintained_view and its part in autogenerate

url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")

if context.is_offline_mode():
    context.configure(
        url=url,
        target_metadata=models.Base.metadata,
        literal_binds=True,
        dialect_opts={"paramstyle": "named"},
    )
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url).connect() as connection:
        context.configure(connection=connection, target_metadata=models.Base.metadata)
        with context.begin_transaction():
            context.run_migrations()
