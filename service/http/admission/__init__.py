"""What a request or a connection must pass, and the limits that it is held to."""
