"""The history of the database: one for SQLite and PostgreSQL, run by `service.db.migrate` or by Alembic."""
