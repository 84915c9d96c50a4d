"""What all tests share: random tests take the time they need, and a failure prints how to repeat it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("merganser", deadline=None, print_blob=True)
settings.load_profile("merganser")
