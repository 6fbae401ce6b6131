from __future__ import annotations

import pytest

from enmasse.network.backoff import SOON, Backoff, ReconnectBackoff, Waits

SHORT, LONG = 0.25, 5.0
CERTAIN = Waits(0.1, LONG, short=SHORT)


def test_waits_grow_to_the_most_and_begin_again_after_a_reset() -> None:
    backoff = Backoff(Waits(0.1, 5.0, factor=5.0))
    assert [backoff.wait() for _ in range(5)] == pytest.approx([0.1, 0.5, 2.5, 5.0, 5.0])
    backoff.reset()
    assert backoff.wait() == 0.1


def test_jitter_shortens_each_wait_and_does_not_add_up() -> None:
    backoff = Backoff(Waits(1.0, 8.0, jitter=0.5))
    for whole in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert whole / 2 <= backoff.wait() <= whole
    waits = {Backoff(Waits(1.0, 8.0, jitter=0.5)).wait() for _ in range(20)}
    assert len(waits) > 1


def tries(backoff: ReconnectBackoff, start: float, until: float) -> list[float]:
    """The waits of a connector whose every try is refused at once."""
    now, waits = start, []
    while now < until:
        waits.append(backoff.wait_from(now))
        now += waits[-1]
    return waits


def test_short_while_the_peer_is_expected_and_long_when_it_does_not_come() -> None:
    waits = tries(ReconnectBackoff(100.0, CERTAIN), 100.0, 100.0 + SOON)
    assert waits[0] < SHORT and max(waits) == SHORT
    backoff = ReconnectBackoff(0.0, CERTAIN)
    tries(backoff, 0.0, SOON)
    later = [backoff.wait_from(SOON + i) for i in range(10)]
    assert later == sorted(later) and later[-1] == LONG


def test_a_connection_that_lived_is_a_new_beginning() -> None:
    backoff = ReconnectBackoff(0.0, CERTAIN)
    tries(backoff, 0.0, 60.0)
    backoff.lost(1000.0, opened_at=60.0)
    waits = tries(backoff, 1000.0, 1000.0 + SOON)
    assert waits[0] < SHORT and max(waits) == SHORT


def test_a_peer_that_drops_every_connection_is_not_dialled_all_the_time() -> None:
    backoff = ReconnectBackoff(0.0, CERTAIN)
    now = 0.0
    while now < 2 * SOON:
        backoff.lost(now, opened_at=now - 0.01)
        now += backoff.wait_from(now)
    backoff.lost(now, opened_at=now - 0.01)
    assert backoff.wait_from(now) == LONG
