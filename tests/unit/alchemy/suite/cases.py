"""SQLAlchemy's suite for dialects."""

from sqlalchemy.testing import suite
from sqlalchemy.testing.suite import *  # noqa: F403


class HasTableTest(suite.HasTableTest):
    @classmethod
    def define_views(cls, metadata: object) -> None:
        """Define none: a directory holds no views. The suite does so whatever the requirement says."""
