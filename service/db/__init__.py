"""The database: rows, and the questions asked of them. No decision is taken here."""
