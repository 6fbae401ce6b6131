//! What brokers keep: queues and topics.

use std::time::{Duration, Instant};

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::link::{Receiver, Sender};
use fe2o3_amqp::types::definitions::{Error, ErrorCondition, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    AmqpValue, ApplicationProperties, Body, Header, Message, MessageAnnotations, MessageId, Modified, Priority,
    Properties, Source, TerminusDurability, TerminusExpiryPolicy,
};
use fe2o3_amqp::types::primitives::{Array, Binary, SimpleValue, Symbol, Timestamp, Uuid, Value};

use crate::peer::{accepted, begin, durable, next, plain, send, take, text, unique, value, Link, Peer};

/// A hundred messages pipelined, received in order.
pub async fn queue(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut sender = link.sender(&peer.address("queue")).await;
    let mut outcomes = Vec::new();
    for i in 0..100 {
        let mut message = durable(&format!("body {i}"));
        message.properties = Some(Properties::builder().message_id(format!("id-{i}")).build());
        outcomes.push(begin(&mut sender, message).await);
    }
    for outcome in outcomes {
        accepted(outcome).await;
    }
    let mut receiver = link.receiver(&peer.address("queue")).await;
    for i in 0..100 {
        let delivery = take(&mut receiver).await;
        assert_eq!(text(&format!("body {i}")), value(&delivery));
        let message = delivery.message();
        let id = message.properties.as_ref().and_then(|p| p.message_id.clone());
        assert_eq!(Some(MessageId::String(format!("id-{i}"))), id);
        assert!(message.header.as_ref().is_some_and(|header| header.durable));
    }
    receiver.close().await.expect("close");
    link.close().await;
}

/// Released and modified come again, rejected goes to the dead-letter address.
pub async fn outcomes(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut sender = link.sender(&peer.address("outcomes")).await;
    send(&mut sender, durable("again and again")).await;
    let mut receiver = link.receiver(&peer.address("outcomes")).await;
    let attempts = |header: &Option<Header>| header.as_ref().map_or(0, |header| header.delivery_count);
    let delivery = next(&mut receiver).await;
    assert_eq!(0, attempts(&delivery.message().header), "first attempt");
    receiver.release(&delivery).await.expect("release");
    let delivery = next(&mut receiver).await;
    assert_eq!(0, attempts(&delivery.message().header), "released is no attempt");
    let failed = Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations: None,
    };
    receiver.modify(&delivery, failed).await.expect("modify");
    let delivery = next(&mut receiver).await;
    assert_eq!(1, attempts(&delivery.message().header), "failed is one");
    let unwanted = Error::new(
        ErrorCondition::Custom(Symbol::from("interop:unwanted")),
        "not this one".to_string(),
        None,
    );
    receiver.reject(&delivery, unwanted).await.expect("reject");
    let mut dead = link.receiver(&peer.address("dead")).await;
    assert_eq!(text("again and again"), value(&take(&mut dead).await), "dead letter");
    dead.close().await.expect("close");
    receiver.close().await.expect("close");
    link.close().await;
}

/// A durable subscription keeps what comes while its client is away, by detach and by loss of the connection.
pub async fn topic(peer: &Peer) {
    let container = format!("{}subscriber", peer.prefix);
    let mut link = peer.connect_as(&container, 65536).await;
    subscribe(peer, &mut link).await.detach().await.expect("detach");
    link.close().await;
    publish(peer, "first").await;
    let mut link = peer.connect_as(&container, 65536).await;
    let mut receiver = subscribe(peer, &mut link).await;
    assert_eq!(text("first"), value(&take(&mut receiver).await), "while detached");
    receiver.detach().await.expect("detach");
    let _attached = subscribe(peer, &mut link).await;
    link.connection.close().await.expect("close"); // with the link attached
    publish(peer, "second").await;
    let mut link = peer.connect_as(&container, 65536).await;
    let mut receiver = subscribe(peer, &mut link).await;
    let second = take(&mut receiver).await;
    assert_eq!(text("second"), value(&second), "while the connection was gone");
    receiver.close().await.expect("close"); // the end of the subscription
    publish(peer, "nobody's").await;
    let mut receiver = subscribe(peer, &mut link).await;
    publish(peer, "third").await;
    assert_eq!(text("third"), value(&take(&mut receiver).await), "a new subscription");
    receiver.close().await.expect("close");
    link.close().await;
}

async fn subscribe(peer: &Peer, link: &mut Link) -> Receiver {
    let source = Source::builder()
        .address(peer.address("topic"))
        .durable(TerminusDurability::UnsettledState)
        .expiry_policy(TerminusExpiryPolicy::Never)
        .capabilities(Array::from(vec![Symbol::from("topic")]))
        .build();
    Receiver::builder()
        .name("durable")
        .source(source)
        .credit_mode(CreditMode::Auto(10))
        .attach(&mut link.session)
        .await
        .expect("a subscription")
}

async fn publish(peer: &Peer, body: &str) {
    let mut link = peer.connect().await;
    let mut sender = link.sender(&peer.address("topic")).await;
    send(&mut sender, durable(body)).await;
    sender.close().await.expect("close");
    link.close().await;
}

/// At most once, from the sender and to the receiver.
pub async fn presettled(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut sender = Sender::builder()
        .name(unique("presettled"))
        .target(peer.address("presettled"))
        .sender_settle_mode(SenderSettleMode::Settled)
        .attach(&mut link.session)
        .await
        .expect("a sender");
    for i in 0..20 {
        send(&mut sender, plain(Value::Int(i))).await;
    }
    sender.close().await.expect("close");
    let mut receiver = Receiver::builder()
        .name(unique("presettled"))
        .source(peer.address("presettled"))
        .sender_settle_mode(SenderSettleMode::Settled)
        .attach(&mut link.session)
        .await
        .expect("a receiver");
    for i in 0..20 {
        assert_eq!(Value::Int(i), value(&next(&mut receiver).await));
    }
    receiver.close().await.expect("close");
    link.close().await;
}

/// A mebibyte in frames of 4 KiB, both ways.
pub async fn large(peer: &Peer) {
    let bytes: Vec<u8> = (0..1usize << 20).map(|i| (i * 31 + (i >> 8)) as u8).collect();
    let mut link = peer.connect_as(&unique("large"), 4096).await;
    let mut sender = link.sender(&peer.address("queue")).await;
    let header = Header::builder().durable(true).build();
    let message = Message::builder()
        .header(header)
        .data(Binary::from(bytes.clone()))
        .build();
    let outcome = sender.send(message).await.expect("sent");
    assert!(outcome.is_accepted(), "{outcome:?}");
    let mut receiver = link.receiver(&peer.address("queue")).await;
    let delivery = take(&mut receiver).await;
    let Body::Data(data) = delivery.body() else {
        panic!("data expected, not {:?}", delivery.body());
    };
    let received: Vec<u8> = data.iter().flat_map(|section| section.0.iter().copied()).collect();
    assert!(bytes == received, "the body is another one");
    receiver.close().await.expect("close");
    link.close().await;
}

/// What has expired is not delivered, what has not is, and tells its time to live.
pub async fn ttl(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut sender = link.sender(&peer.address("ttl")).await;
    let lasting = |body: &str, ttl: u32| {
        let header = Header::builder().durable(true).ttl(ttl).build();
        Message::builder().header(header).value(text(body)).build()
    };
    send(&mut sender, lasting("late", 20)).await;
    let expired = Instant::now() + Duration::from_millis(20);
    send(&mut sender, lasting("in time", 600_000)).await;
    tokio::time::sleep_until(expired.into()).await;
    let mut receiver = link.receiver(&peer.address("ttl")).await;
    let delivery = take(&mut receiver).await;
    assert_eq!(text("in time"), value(&delivery));
    let left = delivery.message().header.as_ref().and_then(|header| header.ttl);
    assert!(left.is_some_and(|ttl| 0 < ttl && ttl <= 600_000), "{left:?}");
    receiver.close().await.expect("close");
    link.close().await;
}

const ID: [u8; 16] = [
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
];

fn typed() -> Message<AmqpValue<Value>> {
    let list = vec![
        text("a"),
        Value::Int(1),
        Value::Long(2),
        Value::Bool(true),
        Value::Double(0.5.into()),
    ];
    let properties = Properties::builder()
        .message_id(MessageId::Uuid(Uuid::from(ID)))
        .user_id(Binary::from(vec![0, 255]))
        .subject("s")
        .reply_to("r")
        .correlation_id("c".to_string())
        .content_type("text/x")
        .creation_time(Timestamp::from_milliseconds(1_600_000_000_123))
        .group_id("g".to_string());
    let application = ApplicationProperties::builder()
        .insert("string", "é")
        .insert("int", -5)
        .insert("long", 1i64 << 40)
        .insert("double", 0.25)
        .insert("bool", false)
        .insert("uuid", SimpleValue::Uuid(Uuid::from(ID)));
    Message::builder()
        .header(Header::builder().durable(true).priority(Priority(7)).build())
        .message_annotations(MessageAnnotations::builder().insert("x-opt-a", Value::Byte(1)).build())
        .properties(properties.build())
        .application_properties(application.build())
        .value(Value::List(list))
        .build()
}

/// A message of many types, for another client to read.
pub async fn types_send(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut sender = link.sender(&peer.address("types")).await;
    send(&mut sender, typed()).await;
    sender.close().await.expect("close");
    link.close().await;
}

/// The same message from another client.
pub async fn types_receive(peer: &Peer) {
    let mut link = peer.connect().await;
    let mut receiver = link.receiver(&peer.address("types")).await;
    let delivery = take(&mut receiver).await;
    let (expected, received) = (typed(), delivery.message());
    assert_eq!(expected.header, received.header);
    assert_eq!(expected.message_annotations, received.message_annotations);
    let mut properties = received.properties.clone().expect("properties");
    properties.group_sequence = None; // Proton sends 0
    assert_eq!(expected.properties, Some(properties));
    let found = received
        .application_properties
        .as_ref()
        .expect("application properties");
    let wanted = expected
        .application_properties
        .as_ref()
        .expect("application properties");
    assert_eq!(wanted.0.len(), found.0.len());
    for (name, value) in wanted.0.iter() {
        assert_eq!(Some(value), found.0.get(name), "{name}");
    }
    assert_eq!(expected.body.0, value(&delivery));
    receiver.close().await.expect("close");
    link.close().await;
}
