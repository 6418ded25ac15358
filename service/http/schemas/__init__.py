"""What goes over the wire, as OpenAPI shows it."""
