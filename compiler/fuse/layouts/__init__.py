"""Layouts and copies: which values lie channels-last, which copies become views, where transposes go."""
