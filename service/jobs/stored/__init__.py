"""What a job that succeeded leaves in the database, a module for each form of it."""
