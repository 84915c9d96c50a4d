"""Table options: one definition each, and the checks of their combinations."""
