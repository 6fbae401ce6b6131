"""What a test asks of the fixture `broker` of its folder, whichever engine that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pytest
from proton.utils import BlockingConnection

from tests.broker.harness import Management


class Reached(Protocol):
    def manage(self) -> AbstractContextManager[Management]: ...

    def connect(self) -> AbstractContextManager[BlockingConnection]: ...


@pytest.fixture
def m(broker: Reached) -> Iterator[Management]:
    """The broker's management."""
    with broker.manage() as management:
        yield management


@pytest.fixture
def c(broker: Reached) -> Iterator[BlockingConnection]:
    """A client's connection."""
    with broker.connect() as connection:
        yield connection
