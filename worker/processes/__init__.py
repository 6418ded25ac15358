"""Processes of a job, seen from outside: started, watched, killed, cleared away."""
