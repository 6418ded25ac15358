"""What an operator sees and does, and what keeps the service in order."""
