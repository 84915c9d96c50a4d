"""Options: one definition each, in `write`, `read`, `upkeep`, `kept` and `catalog`; all of them in `registry`.

A definition says how a text is read, and what this version does with it. What goes together is told in `rules`.
"""
