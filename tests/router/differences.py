"""The contract of routers: which tests hold for the embedded router and for Qpid Dispatch, and how Dispatch differs.

Every test of the modules in CONTRACT runs with both, Dispatch where it is on PATH, but for those in DISPATCH_DIFFERS;
docs/engines.md shows these sentences to users.
"""

from __future__ import annotations

from typing import Final

CONTRACT: Final = (
    "test_addresses",
    "test_anonymous",
    "test_balancing",
    "test_brokers",
    "test_containers",
    "test_forwarding",
    "test_management",
    "test_message_size",
    "test_multicast",
    "test_outcomes",
)

ASKED = "answers a drain from what it holds itself, without asking the broker"
HELD = "leaves what waits for a consumer without credit with it, though another consumer comes"
DRAIN = "does not take back the credit of producers when the last receiver leaves; what they send then is released"
KEPT = "shows the reason of a refused auto-link also after that has become active"
LARGE = "sends a client a performative that is too large for its frames, which costs the connection"
TWICE = "passes on two links of one name to a container, which may end its connection"
DIALS = "shows a connector as `SUCCESS` while it dials, and until that has failed"
CLOSED = "drops a connection that an administrator closes, without a reason for the client"
CRASH = "may crash when a connector is deleted and its connection, or dialling, fails at that moment"
OPEN = "does not show whether a listener's port could be opened; its log says it"
DELAY = "ignores a delivery delay on its own addresses"
COORDINATOR = "refuses transactions with `amqp:precondition-failed`"
UNTOLD = "does not tell a receiver that settles second that the broker was lost before it had settled"
FIRST = "answers rcv-settle-mode `first` to receivers that ask for `second`, though it settles for them"
LEFT = "returns each message that a consumer leaves with `modified` (delivery-failed), also if that has left in order"
UNSTATED = "passes on a settlement without an outcome"
FILTER = "seems to grant filters that have no effect: its attach repeats them"
FIXED = "keeps the treatment of an address until its last link is gone"
QUEUE = "knows no selectors, no browsing and no other way to read a queue: the consumer gets everything"
RELAY = "does not relay to link routes: an anonymous sender does not reach topics"
TEMPORARY = "makes no temporary queues or topics on brokers"
SUBSCRIPTIONS = "does not ask brokers for a subscription whose name alone is known (null source)"
ANSWERS = "answers some requests otherwise, or not at all, none of which the agent or `qdstat` makes"
COUNTED = "counts settled deliveries without a receiver otherwise, and keeps them longer"
MOVED = (
    "keeps the links of a link route that is deleted: publishers of a topic that moves stay on its old broker until it "
    "is deleted there, 5 s later"
)
STAYS = (
    "keeps the links of clients at an address that becomes a topic: those of an anycast or multicast address reach "
    "only each other, what is sent to a former queue is released, and receivers get nothing until they attach again"
)
UNANSWERED = (
    "leaves a durable subscription that is made in the last moment of a move of its topic with the old broker: that "
    "answers when the topic is deleted there, 5 s later, with `amqp:not-found`; attach again then"
)
GONE = "may lose messages that a client sent settled and then left at once, if it was to a topic"

DISPATCH_DIFFERS: Final = {
    "test_links_end_when_their_address_moves": MOVED,
    "test_links_end_when_their_address_becomes_a_topic": STAYS,
    "test_a_durable_subscription_to_a_topic_that_moves_is_made_where_it_is_then": UNANSWERED,
    "test_a_client_whose_connection_an_administrator_closes_is_told": CLOSED,
    "test_a_sender_has_credit_only_while_there_is_a_receiver": DRAIN,
    "test_a_sender_that_ignores_the_drain_can_go_on": DRAIN,
    "test_receivers_connection_lost": DRAIN,
    "test_a_queue_from_end_to_end": DRAIN,
    "test_a_broker_is_lost_with_messages_under_way": DRAIN,
    "test_a_receiver_gets_the_settle_mode_that_it_asks_for": FIRST,
    "test_settlement_reaches_a_receiver_of_mode_second": FIRST,
    "test_a_sender_that_settles_first_lets_the_receivers_state_be_settled_at_once": FIRST,
    "test_a_consumer_leaves_with_messages_of_the_queue": LEFT,
    "test_a_receiver_that_settles_without_an_outcome": UNSTATED,
    "test_a_filter_that_has_no_effect_is_not_granted": FILTER,
    "test_a_filter_nobody_knows_is_not_granted": FILTER,
    "test_an_address_configured_anew_is_treated_anew": FIXED,
    "test_a_removed_address_refuses_new_links_and_leaves_the_old_ones": FIXED,
    "test_a_selector_leaves_what_is_not_its_own": QUEUE,
    "test_a_browser_takes_nothing": QUEUE,
    "test_what_a_queue_has_not_is_refused": QUEUE,
    "test_a_drain_is_answered_when_the_broker_has_been_asked": ASKED,
    "test_after_a_drain_messages_come_as_before": ASKED,
    "test_the_relay_reaches_topics": RELAY,
    "test_a_temporary_queue_is_reached_by_everybody": TEMPORARY,
    "test_a_temporary_queue_goes_with_its_connection": TEMPORARY,
    "test_a_subscription_is_found_at_whichever_broker_it_lies": SUBSCRIPTIONS,
    "test_a_subscription_that_may_be_at_an_absent_broker_is_not_said_to_be_none": SUBSCRIPTIONS,
    "test_what_a_client_sent_settled_before_it_left_arrives": GONE,
    "test_presettled_deliveries_do_not_pile_up": COUNTED,
    "test_presettled_deliveries_that_are_dropped_are_counted_as_presettled": COUNTED,
    "test_a_delay_is_not_ignored": DELAY,
    "test_a_broker_is_lost_before_it_settled_what_a_receiver_accepted": UNTOLD,
    "test_a_broker_is_lost_before_a_receiver_that_settles_second_has_accepted": UNTOLD,
    "test_a_refused_autolink_says_why_and_is_tried_again": KEPT,
    "test_a_transaction_without_work": COORDINATOR,
    "test_a_link_of_the_same_name_takes_the_place_of_an_older_one": TWICE,
    "test_an_answer_too_large_for_a_client_costs_its_link_only": LARGE,
    "test_a_reason_too_large_for_the_sender_is_shortened": LARGE,
    "test_a_consumer_that_never_settles_holds_only_what_it_has": HELD,
    "test_query_chooses_columns_and_pages": ANSWERS,
    "test_everything_gets_an_answer": ANSWERS,
    "test_every_type_can_be_queried": ANSWERS,
    "test_correlation_ids_come_back_with_their_type": ANSWERS,
    "test_a_listener_made_at_run_time_works_and_goes": OPEN,
    "test_refusals_of_listeners": ANSWERS,
    "test_a_connector_is_not_shown_as_connected_before_it_is": DIALS,
    "test_a_connector_is_deleted_while_its_peer_is_not_there": CRASH,
    "test_inter_router_connectors_are_kept_and_reported": CRASH,
    "test_when_the_last_delivery_was_is_not_known_before_there_was_one": ANSWERS,
    "test_odd_queries_are_answered": ANSWERS,
}
"""Test → what Dispatch does instead."""
