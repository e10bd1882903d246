"""Maintained views in SQLAlchemy, Alembic, Django and pytest; users import these modules from `idivm`.

Each creates views by idivm's functions in SQL, over the framework's own connection and inside its transaction. So a
migration either happens as a whole or not at all.
"""
