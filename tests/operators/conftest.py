"""The operators' tests borrow the workers' fleet."""

from tests.workers.conftest import fleet

__all__ = ["fleet"]
