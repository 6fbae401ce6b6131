"""Every numbered statement of the MQTT specifications, in our words, and why some have no test.

A line is `number | statement` or `number | statement | reason why no test of a server applies`. Sources: MQTT
Version 3.1.1 (OASIS Standard, 29 October 2014), MQTT Version 5.0 (OASIS Standard, 7 March 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

CLIENT = "binds the client"
CHOICE = "applies to a server that chooses otherwise"

V311 = """
1.5.3-1 | ill-formed UTF-8 in a packet closes the connection
1.5.3-2 | U+0000 in a string closes the connection
1.5.3-3 | EF BB BF in a string is U+FEFF and is kept
2.2.2-1 | reserved flags have the values of the specification
2.2.2-2 | other flags close the connection
2.3.1-1 | SUBSCRIBE, UNSUBSCRIBE and PUBLISH with QoS > 0 have a packet id that is not zero
2.3.1-2 | a new packet has an id that is not in use | CLIENT
2.3.1-3 | a packet that is sent again has its old id | CLIENT
2.3.1-4 | the same holds for the server's PUBLISH packets
2.3.1-5 | a PUBLISH with QoS 0 has no packet id
2.3.1-6 | PUBACK, PUBREC and PUBREL have the id of the PUBLISH
2.3.1-7 | SUBACK and UNSUBACK have the id of the request
3.1.0-1 | the first packet of a client is CONNECT
3.1.0-2 | a second CONNECT closes the connection
3.1.2-1 | with another protocol name a CONNECT is not processed by this specification
3.1.2-2 | an unknown protocol level gets CONNACK 0x01 and the connection is closed
3.1.2-3 | the reserved flag of CONNECT is 0, else the connection is closed
3.1.2-4 | without Clean Session the session is resumed, or a new one is made and kept after the connection
3.1.2-5 | QoS 1 and 2 messages for the subscriptions of a kept session are stored while its client is away
3.1.2-6 | with Clean Session an old session is discarded, and the new one ends with the connection
3.1.2-7 | retained messages outlive the session
3.1.2-8 | the will is stored with the connection and published when that ends without DISCONNECT
3.1.2-9 | with the will flag there are a will topic and a will message
3.1.2-10 | a will is removed once it is published or DISCONNECT has come
3.1.2-11 | without the will flag, will QoS and will retain are 0 and the payload has neither topic nor message
3.1.2-12 | without the will flag nothing is published at the end
3.1.2-13 | without the will flag, will QoS is 0
3.1.2-14 | will QoS is not 3
3.1.2-15 | without the will flag, will retain is 0
3.1.2-16 | without will retain the will is published as a message that is not retained
3.1.2-17 | with will retain the will is published as a retained message
3.1.2-18 | without the user name flag there is no user name
3.1.2-19 | with the user name flag there is a user name
3.1.2-20 | without the password flag there is no password
3.1.2-21 | with the password flag there is a password
3.1.2-22 | without the user name flag the password flag is 0
3.1.2-23 | a client sends PINGREQ within the keep-alive time | CLIENT
3.1.2-24 | a client that is silent for one and a half keep-alive times is disconnected
3.1.3-1 | the fields of the payload have a fixed order
3.1.3-2 | the client id identifies the session
3.1.3-3 | the client id is present and first in the payload
3.1.3-4 | the client id is UTF-8
3.1.3-5 | client ids of 1 to 23 bytes with digits and letters are allowed
3.1.3-6 | a server that allows an empty client id gives the client a unique one
3.1.3-7 | a client with an empty id sets Clean Session
3.1.3-8 | an empty client id without Clean Session gets CONNACK 0x02 and the connection is closed
3.1.3-9 | a refused client id gets CONNACK 0x02 and the connection is closed
3.1.3-10 | the will topic is UTF-8
3.1.3-11 | the user name is UTF-8
3.1.4-1 | a CONNECT that breaks 3.1 closes the connection without a CONNACK
3.1.4-2 | a second connection of a client id disconnects the first
3.1.4-3 | Clean Session is processed as 3.1.2.4 says
3.1.4-4 | a CONNECT is acknowledged with CONNACK 0
3.1.4-5 | after a refused CONNECT nothing of the client is processed
3.2.0-1 | the first packet of the server is CONNACK
3.2.2-1 | with Clean Session, session present is 0
3.2.2-2 | without Clean Session, session present says if there was a session
3.2.2-3 | without a session, session present is 0
3.2.2-4 | with a return code other than 0, session present is 0
3.2.2-5 | after a return code other than 0 the connection is closed
3.2.2-6 | if no return code fits, the connection is closed without CONNACK
3.3.1-1 | DUP is 1 on a PUBLISH that is sent again
3.3.1-2 | DUP is 0 with QoS 0
3.3.1-3 | DUP of the outgoing PUBLISH does not depend on that of the incoming one
3.3.1-4 | QoS 3 closes the connection
3.3.1-5 | a retained message and its QoS are stored for future subscribers
3.3.1-6 | a new subscription gets the last retained message of every topic it matches
3.3.1-7 | a QoS 0 message with RETAIN discards the one before
3.3.1-8 | RETAIN is 1 on what a new subscription gets from the store
3.3.1-9 | RETAIN is 0 on what an existing subscription gets
3.3.1-10 | an empty retained message removes the one before and is delivered
3.3.1-11 | an empty retained message is not stored
3.3.1-12 | without RETAIN nothing is stored, removed or replaced
3.3.2-1 | the topic name is first in the PUBLISH and UTF-8
3.3.2-2 | a topic name has no wildcards
3.3.2-3 | the topic name that a subscriber gets matches its filter
3.3.4-1 | a PUBLISH is answered as its QoS demands
3.3.5-1 | with overlapping subscriptions the highest of their QoS counts
3.3.5-2 | a PUBLISH that is not authorized is acknowledged, or the connection is closed
3.6.1-1 | the flags of PUBREL are 0010, else the connection is closed
3.8.1-1 | the flags of SUBSCRIBE are 0010, else the connection is closed
3.8.3-1 | filters in SUBSCRIBE are UTF-8
3.8.3-2 | a server without wildcards refuses filters that have them | CHOICE
3.8.3-3 | a SUBSCRIBE has at least one filter
3.8.3-4 | reserved bits or QoS 3 in SUBSCRIBE close the connection
3.8.4-1 | a SUBSCRIBE gets a SUBACK
3.8.4-2 | the SUBACK has its packet id
3.8.4-3 | the same filter again replaces the subscription, sends retained messages again and loses nothing
3.8.4-4 | several filters in a SUBSCRIBE are handled as several SUBSCRIBEs with one SUBACK
3.8.4-5 | a SUBACK has a return code for each filter
3.8.4-6 | what a subscription gets has the lower of the published and the granted QoS
3.9.3-1 | return codes of SUBACK are in the order of the filters
3.9.3-2 | return codes of SUBACK are 0, 1, 2 or 0x80
3.10.1-1 | the flags of UNSUBSCRIBE are 0010, else the connection is closed
3.10.3-1 | filters in UNSUBSCRIBE are UTF-8
3.10.3-2 | an UNSUBSCRIBE has at least one filter
3.10.4-1 | filters to remove are compared character by character
3.10.4-2 | after UNSUBSCRIBE no new messages are added
3.10.4-3 | QoS 1 and 2 messages that were being sent are completed after UNSUBSCRIBE
3.10.4-4 | an UNSUBSCRIBE gets an UNSUBACK with its packet id
3.10.4-5 | also if no subscription was removed
3.10.4-6 | several filters in an UNSUBSCRIBE are handled as several with one UNSUBACK
3.12.4-1 | a PINGREQ gets a PINGRESP
3.14.1-1 | reserved flags of DISCONNECT are 0, else the connection is closed
3.14.4-1 | a client closes the connection after DISCONNECT | CLIENT
3.14.4-2 | a client sends nothing after DISCONNECT | CLIENT
3.14.4-3 | on DISCONNECT the will is discarded
4.1.0-1 | session state is kept for the whole session
4.1.0-2 | a session lasts at least as long as its connection
4.3.1-1 | QoS 0 is sent with QoS 0 and DUP 0
4.3.2-1 | a QoS 1 sender uses a free packet id, DUP 0, and holds the message until its PUBACK
4.3.2-2 | a QoS 1 receiver answers with PUBACK; after it the same id is a new message
4.3.3-1 | a QoS 2 sender holds the message until PUBREC, then PUBREL until PUBCOMP, and does not send PUBLISH again
4.3.3-2 | a QoS 2 receiver answers PUBREC and PUBCOMP, and delivers once until PUBREL
4.4.0-1 | on reconnecting, unacknowledged PUBLISH and PUBREL are sent again with their ids
4.5.0-1 | a message is added to the sessions of all clients with a matching subscription
4.5.0-2 | a client acknowledges each PUBLISH by its QoS | CLIENT
4.6.0-1 | PUBLISH packets are sent again in the order in which they were sent
4.6.0-2 | PUBACKs are in the order of the PUBLISHes
4.6.0-3 | PUBRECs are in the order of the PUBLISHes
4.6.0-4 | PUBRELs are in the order of the PUBRECs
4.6.0-5 | every topic is ordered by default
4.6.0-6 | subscribers get the messages of a client on a topic in their order
4.7.1-1 | topic names have no wildcards
4.7.1-2 | `#` stands alone or after a `/`, and last
4.7.1-3 | `+` takes a whole level
4.7.2-1 | a filter that begins with a wildcard does not match topics that begin with `$`
4.7.3-1 | names and filters have at least one character
4.7.3-2 | names and filters have no U+0000
4.7.3-3 | names and filters have at most 65,535 bytes
4.7.3-4 | nothing is normalized when filters are matched
4.8.0-1 | a protocol violation closes the connection
4.8.0-2 | a transient error closes the connection
6.0.0-1 | over WebSocket MQTT is in binary frames; another one closes the connection
6.0.0-2 | packets need not be aligned on WebSocket frames
6.0.0-3 | the client offers the subprotocol `mqtt` | CLIENT
6.0.0-4 | the server selects the subprotocol `mqtt`
7.0.0-1 | an implementation is a client, a server or both | a definition
7.0.0-2 | both at once conform on both sides | a definition
7.1.1-1 | a server conforms if it holds all that binds a server | the sum of this table
7.1.1-2 | a server speaks TCP/IP or another ordered, lossless, two-way transport
7.1.2-1 | a client conforms if it holds all that binds a client | CLIENT
7.1.2-2 | a client speaks such a transport | CLIENT
"""

V5 = """
1.5.4-1 | strings are well-formed UTF-8 without surrogates
1.5.4-2 | strings have no U+0000
1.5.4-3 | EF BB BF in a string is U+FEFF and is kept
1.5.5-1 | a variable byte integer has the fewest bytes possible
1.5.7-1 | both strings of a pair are UTF-8
2.1.3-1 | reserved flags have the values of the specification
2.2.1-2 | a PUBLISH with QoS 0 has no packet id
2.2.1-3 | a client's new SUBSCRIBE, UNSUBSCRIBE and PUBLISH have an id that is not zero and not in use
2.2.1-4 | a server's new PUBLISH has an id that is not zero and not in use
2.2.1-5 | PUBACK, PUBREC, PUBREL and PUBCOMP have the id of the PUBLISH
2.2.1-6 | SUBACK and UNSUBACK have the id of the request
2.2.2-1 | no properties are a property length of 0
3.1.0-1 | the first packet of a client is CONNECT
3.1.0-2 | a second CONNECT closes the connection
3.1.2-1 | another protocol name is refused and the connection is closed
3.1.2-2 | another protocol version is refused and the connection is closed
3.1.2-3 | the reserved flag of CONNECT is 0
3.1.2-4 | Clean Start discards an existing session
3.1.2-5 | without Clean Start an existing session is resumed
3.1.2-6 | without Clean Start and without a session a new one is made
3.1.2-7 | a will is stored and belongs to the session
3.1.2-8 | the will is published after its delay or at the end of the session, unless DISCONNECT 0x00 or the client came
3.1.2-9 | with the will flag there are will properties, topic and payload
3.1.2-10 | a will is removed once it is published or DISCONNECT 0x00 has come
3.1.2-11 | without the will flag, will QoS is 0
3.1.2-12 | will QoS is 0, 1 or 2
3.1.2-13 | without the will flag, will retain is 0
3.1.2-14 | without will retain the will is published as a message that is not retained
3.1.2-15 | with will retain the will is published as a retained message
3.1.2-16 | without the user name flag there is no user name
3.1.2-17 | with the user name flag there is a user name
3.1.2-18 | without the password flag there is no password
3.1.2-19 | with the password flag there is a password
3.1.2-20 | a client sends PINGREQ within the keep-alive time | CLIENT
3.1.2-21 | a client uses the server's keep-alive time if it gets one | CLIENT
3.1.2-22 | a client that is silent for one and a half keep-alive times is disconnected
3.1.2-23 | a session with an expiry interval above 0 is stored after the connection
3.1.2-24 | no packet exceeds the client's maximum packet size
3.1.2-25 | a message that is too large is discarded as if it had been sent
3.1.2-26 | no topic alias exceeds the client's maximum
3.1.2-27 | without a maximum the server sends no topic alias
3.1.2-28 | response information is not sent to a client that did not ask for it
3.1.2-29 | with Request Problem Information 0 only PUBLISH, CONNACK and DISCONNECT have reason strings
3.1.2-30 | with an authentication method a client sends only AUTH and DISCONNECT before CONNACK | CLIENT
3.1.3-1 | the fields of the payload have a fixed order
3.1.3-2 | the client id identifies the session
3.1.3-3 | the client id is present and first in the payload
3.1.3-4 | the client id is UTF-8
3.1.3-5 | client ids of 1 to 23 bytes with digits and letters are allowed
3.1.3-6 | a server that allows an empty client id gives the client a unique one
3.1.3-7 | the given client id is in CONNACK, and the CONNECT is processed as if it had carried it
3.1.3-8 | a refused client id closes the connection
3.1.3-9 | a client that is back before its will delay has passed has its will not published
3.1.3-10 | user properties of a will are published in their order
3.1.3-11 | the will topic is UTF-8
3.1.3-12 | the user name is UTF-8
3.1.4-1 | a CONNECT that breaks 3.1 closes the connection
3.1.4-2 | a CONNECT that fails further checks closes the connection
3.1.4-3 | a second connection of a client id ends the first, with DISCONNECT 0x8E
3.1.4-4 | Clean Start is processed as 3.1.2.4 says
3.1.4-5 | a CONNECT is acknowledged with CONNACK 0x00
3.1.4-6 | after a refused CONNECT nothing but AUTH is processed
3.2.0-1 | the server sends CONNACK 0x00 before any other packet except AUTH
3.2.0-2 | the server sends one CONNACK a connection
3.2.2-1 | bits 7 to 1 of the CONNACK flags are 0
3.2.2-2 | with Clean Start, session present is 0
3.2.2-3 | without Clean Start, session present says if there was a session
3.2.2-4 | a client without a session closes if it is told of one | CLIENT
3.2.2-5 | a client with a session discards it if the server has none | CLIENT
3.2.2-6 | with a reason code other than 0, session present is 0
3.2.2-7 | after a reason code of 0x80 or more the connection is closed
3.2.2-8 | CONNACK has one of its reason codes
3.2.2-9 | a server without QoS 1 or 2 says so in CONNACK | CHOICE
3.2.2-10 | such a server accepts subscriptions of every QoS | CHOICE
3.2.2-11 | a client keeps to the maximum QoS | CLIENT
3.2.2-12 | such a server refuses a will above its QoS | CHOICE
3.2.2-13 | a server without retained messages refuses a retained will | CHOICE
3.2.2-14 | a client of such a server sends no RETAIN | CLIENT
3.2.2-15 | a client keeps to the server's maximum packet size; a larger one is refused
3.2.2-16 | an empty client id gets a new one in CONNACK
3.2.2-17 | a client keeps to the server's topic alias maximum; a higher one is refused
3.2.2-18 | without that maximum a client sends no alias; one is refused | CHOICE
3.2.2-19 | no reason string that makes CONNACK too large
3.2.2-20 | no user property that makes CONNACK too large | the gateway sends no user properties of its own
3.2.2-21 | a client uses the server's keep-alive time | CLIENT
3.2.2-22 | without a server keep-alive time, that of the client holds
3.3.1-1 | DUP is 1 on a PUBLISH that is sent again
3.3.1-2 | DUP is 0 with QoS 0
3.3.1-3 | DUP of the outgoing PUBLISH does not depend on that of the incoming one
3.3.1-4 | QoS 3 is malformed
3.3.1-5 | a message with RETAIN replaces the retained one of its topic
3.3.1-6 | an empty retained message is processed as any and removes the retained one
3.3.1-7 | an empty retained message is not stored
3.3.1-8 | without RETAIN nothing is stored, removed or replaced
3.3.1-9 | with Retain Handling 0 a subscription gets retained messages
3.3.1-10 | with Retain Handling 1 it gets them only if it is new
3.3.1-11 | with Retain Handling 2 it gets none
3.3.1-12 | without Retain As Published, RETAIN of a forwarded message is 0
3.3.1-13 | with Retain As Published, RETAIN of a forwarded message is as it was published
3.3.2-1 | the topic name is first in the PUBLISH and UTF-8
3.3.2-2 | a topic name has no wildcards
3.3.2-3 | the topic name that a subscriber gets matches its filter
3.3.2-4 | the payload format indicator is forwarded unchanged
3.3.2-5 | a message whose expiry interval has passed is not delivered
3.3.2-6 | the expiry interval is forwarded less the time that the message waited
3.3.2-7 | topic aliases do not outlive the connection
3.3.2-8 | topic alias 0 is not sent, and refused
3.3.2-9 | a client's topic alias is at most the server's maximum
3.3.2-10 | a client accepts aliases up to its maximum | CLIENT
3.3.2-11 | a server's topic alias is at most the client's maximum
3.3.2-12 | a server accepts all aliases from 1 to its maximum
3.3.2-13 | the response topic is UTF-8
3.3.2-14 | the response topic has no wildcards
3.3.2-15 | the response topic is forwarded unchanged
3.3.2-16 | correlation data are forwarded unchanged
3.3.2-17 | user properties are forwarded unchanged
3.3.2-18 | user properties keep their order
3.3.2-19 | the content type is UTF-8
3.3.2-20 | the content type is forwarded unchanged
3.3.4-1 | a PUBLISH is answered as its QoS demands
3.3.4-2 | with overlapping subscriptions the highest of their QoS counts
3.3.4-3 | subscription identifiers of overlapping subscriptions are sent
3.3.4-4 | a single copy has the identifiers of all subscriptions that match
3.3.4-5 | of several copies each has the identifier of its subscription | CHOICE
3.3.4-6 | a client's PUBLISH has no subscription identifier
3.3.4-7 | a client keeps to the server's receive maximum; more is refused with 0x93
3.3.4-8 | a client delays nothing but PUBLISH at the receive maximum | CLIENT
3.3.4-9 | a server keeps to the client's receive maximum
3.3.4-10 | a server delays nothing but PUBLISH at the receive maximum
3.4.2-1 | PUBACK has one of its reason codes
3.4.2-2 | no reason string that makes PUBACK too large
3.4.2-3 | no user property that makes PUBACK too large | the gateway sends no user properties of its own
3.5.2-1 | PUBREC has one of its reason codes
3.5.2-2 | no reason string that makes PUBREC too large
3.5.2-3 | no user property that makes PUBREC too large | the gateway sends no user properties of its own
3.6.1-1 | the flags of PUBREL are 0010, else the connection is closed
3.6.2-1 | PUBREL has one of its reason codes
3.6.2-2 | no reason string that makes PUBREL too large | the gateway's PUBREL has no properties
3.6.2-3 | no user property that makes PUBREL too large | the gateway's PUBREL has no properties
3.7.2-1 | PUBCOMP has one of its reason codes
3.7.2-2 | no reason string that makes PUBCOMP too large
3.7.2-3 | no user property that makes PUBCOMP too large | the gateway sends no user properties of its own
3.8.1-1 | the flags of SUBSCRIBE are 0010, else the connection is closed
3.8.3-1 | filters in SUBSCRIBE are UTF-8
3.8.3-2 | a SUBSCRIBE has at least one filter
3.8.3-3 | with No Local a client does not get what it has published
3.8.3-4 | No Local on a shared subscription is a protocol error
3.8.3-5 | reserved bits in SUBSCRIBE are malformed
3.8.4-1 | a SUBSCRIBE gets a SUBACK
3.8.4-2 | the SUBACK has its packet id
3.8.4-3 | the same filter again replaces the subscription
3.8.4-4 | with Retain Handling 0 retained messages are sent again, and nothing is lost by the replacement
3.8.4-5 | several filters in a SUBSCRIBE are handled as several SUBSCRIBEs with one SUBACK
3.8.4-6 | a SUBACK has a reason code for each filter
3.8.4-7 | it is the granted QoS or says that the subscription failed
3.8.4-8 | what a subscription gets has the lower of the published and the granted QoS
3.9.2-1 | no reason string that makes SUBACK too large
3.9.2-2 | no user property that makes SUBACK too large | the gateway sends no user properties of its own
3.9.3-1 | reason codes of SUBACK are in the order of the filters
3.9.3-2 | SUBACK has its reason codes only
3.10.1-1 | the flags of UNSUBSCRIBE are 0010, else the connection is closed
3.10.3-1 | filters in UNSUBSCRIBE are UTF-8
3.10.3-2 | an UNSUBSCRIBE has at least one filter
3.10.4-1 | filters to remove are compared character by character
3.10.4-2 | after UNSUBSCRIBE no new messages are added
3.10.4-3 | QoS 1 and 2 messages that were being sent are completed after UNSUBSCRIBE
3.10.4-4 | an UNSUBSCRIBE gets an UNSUBACK
3.10.4-5 | with its packet id, also if no subscription was removed
3.10.4-6 | several filters in an UNSUBSCRIBE are handled as several with one UNSUBACK
3.11.2-1 | no reason string that makes UNSUBACK too large
3.11.2-2 | no user property that makes UNSUBACK too large | the gateway sends no user properties of its own
3.11.3-1 | reason codes of UNSUBACK are in the order of the filters
3.11.3-2 | UNSUBACK has its reason codes only
3.12.4-1 | a PINGREQ gets a PINGRESP
3.14.0-1 | the server sends no DISCONNECT before a CONNACK below 0x80
3.14.1-1 | reserved flags of DISCONNECT are 0
3.14.2-1 | DISCONNECT has one of its reason codes
3.14.2-2 | the server's DISCONNECT has no session expiry interval
3.14.2-3 | no reason string that makes DISCONNECT too large
3.14.2-4 | no user property that makes DISCONNECT too large | the gateway sends no user properties of its own
3.14.4-1 | nothing is sent after DISCONNECT
3.14.4-2 | the connection is closed after DISCONNECT
3.14.4-3 | on DISCONNECT 0x00 the will is discarded
3.15.1-1 | the flags of AUTH are 0, else the connection is closed
3.15.2-1 | AUTH has one of its reason codes
3.15.2-2 | no reason string that makes AUTH too large | the gateway sends no AUTH: there is no extended method yet
3.15.2-3 | no user property that makes AUTH too large | the gateway sends no AUTH: there is no extended method yet
4.1.0-1 | session state is not discarded while the connection is open
4.1.0-2 | session state is discarded when the connection is closed and its expiry interval has passed
4.2-1 | the transport is ordered, lossless and goes both ways
4.3.1-1 | QoS 0 is sent with QoS 0 and DUP 0
4.3.2-1 | a QoS 1 sender uses a packet id that is not in use
4.3.2-2 | it sends PUBLISH with QoS 1 and DUP 0
4.3.2-3 | it holds the message until its PUBACK
4.3.2-4 | a QoS 1 receiver answers with PUBACK once it owns the message
4.3.2-5 | after PUBACK the same id is a new message, whatever DUP says
4.3.3-1 | a QoS 2 sender uses a packet id that is not in use
4.3.3-2 | it sends PUBLISH with QoS 2 and DUP 0
4.3.3-3 | it holds the message until its PUBREC
4.3.3-4 | on PUBREC below 0x80 it sends PUBREL with the same id
4.3.3-5 | it holds PUBREL until its PUBCOMP
4.3.3-6 | after PUBREL it does not send PUBLISH again
4.3.3-7 | a message that was sent does not expire
4.3.3-8 | a QoS 2 receiver answers with PUBREC once it owns the message
4.3.3-9 | after PUBREC of 0x80 or more the same id is a new message
4.3.3-10 | until PUBREL the same id gets PUBREC and is not delivered twice
4.3.3-11 | PUBREL gets PUBCOMP with its id
4.3.3-12 | after PUBCOMP the same id is a new message
4.3.3-13 | the exchange is completed even if the message has expired
4.4.0-1 | on reconnecting, unacknowledged PUBLISH and PUBREL are sent again with their ids, and only then
4.4.0-2 | a PUBLISH that got 0x80 or more is not sent again
4.5.0-1 | a message is added to the sessions of all clients with a matching subscription
4.5.0-2 | a client acknowledges each PUBLISH by its QoS | CLIENT
4.6.0-1 | PUBLISH packets are sent again in the order in which they were sent
4.6.0-2 | PUBACKs are in the order of the PUBLISHes
4.6.0-3 | PUBRECs are in the order of the PUBLISHes
4.6.0-4 | PUBRELs are in the order of the PUBRECs
4.6.0-5 | on an ordered topic subscribers get the messages of a client in their order
4.6.0-6 | every topic is ordered for subscriptions that are not shared
4.7.0-1 | topic names have no wildcards
4.7.1-1 | `#` stands alone or after a `/`, and last
4.7.1-2 | `+` takes a whole level
4.7.2-1 | a filter that begins with a wildcard does not match topics that begin with `$`
4.7.3-1 | names and filters have at least one character
4.7.3-2 | names and filters have no U+0000
4.7.3-3 | names and filters have at most 65,535 bytes
4.7.3-4 | nothing is normalized when filters are matched
4.8.2-1 | a shared filter begins with $share/ and has a share name
4.8.2-2 | the share name has no `/`, `+` or `#`, and a filter follows it
4.8.2-3 | a shared subscription gets at most its granted QoS
4.8.2-4 | a QoS 2 message that was being sent to a member is completed to it when it is back
4.8.2-5 | if the session of that member ends, nobody else gets the message
4.8.2-6 | a message that a member refuses with 0x80 or more goes to nobody else
4.9.0-1 | the send quota begins with at most the receive maximum
4.9.0-2 | at a quota of 0 no PUBLISH with QoS > 0 is sent
4.9.0-3 | at a quota of 0 all other packets are processed
4.12.0-1 | an unknown authentication method is refused and the connection is closed
4.12.0-2 | an AUTH of the server has reason code 0x18
4.12.0-3 | a client answers with AUTH 0x18 | CLIENT
4.12.0-4 | a refused authentication closes the connection
4.12.0-5 | AUTH and CONNACK repeat the authentication method
4.12.0-6 | without a method in CONNECT the server sends neither AUTH nor a method in CONNACK
4.12.0-7 | without a method in CONNECT a client sends no AUTH; one is a protocol error
4.12.1-1 | a client authenticates again with its first method only | CLIENT
4.12.1-2 | if that fails, DISCONNECT says why
4.13.1-1 | a malformed packet or protocol error closes the connection
4.13.2-1 | a reason code of 0x80 or more in CONNACK or DISCONNECT closes the connection
6.0.0-1 | over WebSocket MQTT is in binary frames; another one closes the connection
6.0.0-2 | packets need not be aligned on WebSocket frames
6.0.0-3 | the client offers the subprotocol `mqtt` | CLIENT
6.0.0-4 | the server selects the subprotocol `mqtt`
"""


@dataclass(frozen=True)
class Clause:
    """`reason`: why no test applies; "" if one does."""

    version: str
    number: str
    statement: str
    reason: str


def _parsed(version: str, text: str) -> list[Clause]:
    reasons = {"CLIENT": CLIENT, "CHOICE": CHOICE, "": ""}
    found = []
    for line in text.strip().splitlines():
        number, statement, reason = (*(part.strip() for part in line.split("|")), "")[:3]
        found.append(Clause(version, f"MQTT-{number}", statement, reasons.get(reason, reason)))
    return found


CLAUSES = [*_parsed("v3.1.1", V311), *_parsed("v5", V5)]
