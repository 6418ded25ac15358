"""What answers are made of: errors, downloads, lists, pages."""
