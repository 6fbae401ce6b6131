"""Who may take a Lease: no clock is compared with another machine's."""

from __future__ import annotations

from typing import Any

from enmasse.kubernetes.lease import DURATION, Record


def lease(holder: str, renewed: str, duration: int = DURATION, transitions: int = 0) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    return {"metadata": {"name": "x"}, "spec": {**spec, "leaseTransitions": transitions}}


def test_a_lease_expires_by_the_time_it_is_seen_unchanged() -> None:
    record = Record("b")
    assert not record.free(lease("a", "2001-01-01T00:00:00.000000Z"), 100.0)  # long ago by the holder's clock
    assert not record.free(lease("a", "2001-01-01T00:00:00.000000Z"), 100.0 + DURATION - 0.1)
    assert not record.free(lease("a", "1999-01-01T00:00:00.000000Z"), 100.0 + DURATION)  # it was renewed
    assert not record.free(lease("a", "1999-01-01T00:00:00.000000Z"), 100.0 + 2 * DURATION - 0.1)
    assert record.free(lease("a", "1999-01-01T00:00:00.000000Z"), 100.0 + 2 * DURATION)


def test_a_lease_that_was_given_back_or_is_ones_own_is_free_at_once() -> None:
    record = Record("b")
    assert record.free(None, 1.0)
    assert record.free(lease("", "2001-01-01T00:00:00.000000Z", 1), 1.0)
    assert record.free(lease("b", "2001-01-01T00:00:00.000000Z"), 1.0)
    assert record.free({"metadata": {"name": "x"}}, 1.0)


def test_taking_counts_transitions_and_renewing_does_not() -> None:
    record = Record("b")
    first = record.taken(None, "x")
    assert first["metadata"] == {"name": "x"} and first["spec"]["leaseTransitions"] == 0
    again = record.taken(first, "x")
    assert (again["spec"]["leaseTransitions"], again["spec"]["acquireTime"]) == (0, first["spec"]["acquireTime"])
    other = Record("c").taken(again, "x")
    assert (other["spec"]["holderIdentity"], other["spec"]["leaseTransitions"]) == ("c", 1)
