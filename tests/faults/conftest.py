"""The same fleet as the workers' tests have, to be broken."""

from tests.workers.conftest import fleet

__all__ = ["fleet"]
