from __future__ import annotations

from services.router.backoff import LONG, SHORT, SOON, Backoff


def tries(backoff: Backoff, start: float, until: float) -> list[float]:
    """The waits of a connector whose every try is refused at once."""
    now, waits = start, []
    while now < until:
        waits.append(backoff.wait(now))
        now += waits[-1]
    return waits


def test_short_while_the_peer_is_expected_and_long_when_it_does_not_come() -> None:
    waits = tries(Backoff(100.0), 100.0, 100.0 + SOON)
    assert waits[0] < SHORT and max(waits) == SHORT
    backoff = Backoff(0.0)
    tries(backoff, 0.0, SOON)
    later = [backoff.wait(SOON + i) for i in range(10)]
    assert later == sorted(later) and later[-1] == LONG


def test_a_connection_that_lived_is_a_new_beginning() -> None:
    backoff = Backoff(0.0)
    tries(backoff, 0.0, 60.0)
    backoff.lost(1000.0, opened_at=60.0)
    waits = tries(backoff, 1000.0, 1000.0 + SOON)
    assert waits[0] < SHORT and max(waits) == SHORT


def test_a_peer_that_drops_every_connection_is_not_dialled_all_the_time() -> None:
    backoff = Backoff(0.0)
    now = 0.0
    while now < 2 * SOON:
        backoff.lost(now, opened_at=now - 0.01)
        now += backoff.wait(now)
    backoff.lost(now, opened_at=now - 0.01)
    assert backoff.wait(now) == LONG
