"""The model of one queue, without a store."""

from __future__ import annotations

from hypothesis import settings

from tests.broker.queue_machine import QueueMachine

TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
