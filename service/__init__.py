"""The web service: takes models in, keeps the record of every job, hands artifacts out."""
