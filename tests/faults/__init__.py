"""Faults: failing storage, stopped processes, damaged bytes, races."""

import os

STEP = int(os.environ.get("MERGANSER_FAULT_STEP", "4"))
"""Of the long fault tests every so-manieth storage call is struck, from another first call in each; 1: every call."""
