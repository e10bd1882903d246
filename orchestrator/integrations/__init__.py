"""Maintained views in SQLAlchemy, Alembic, Django and pytest. Users import these modules from `idivm`.

Each module creates views by idivm's SQL functions, over the framework's own connection and inside its
transaction. So a migration is applied either completely or not at all.
"""
