"""`python -m bench models`: whole models beside peers, with what is needed to believe the figures."""
