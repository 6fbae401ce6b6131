"""What tests of the authentication service share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.authserv.published import Published


@pytest.fixture
def published() -> Iterator[Published]:
    found = Published()
    yield found
    found.close()
