"""How much the service bears: status reads, event streams, transfers and preflights, on a server of its own."""
