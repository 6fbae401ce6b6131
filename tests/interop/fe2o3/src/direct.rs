//! What routers carry from link to link.

use std::time::Duration;

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::link::{Receiver, ReceiverAttachError, Sender, SenderAttachError};
use fe2o3_amqp::types::definitions::{AmqpError, Error, ErrorCondition};
use fe2o3_amqp::types::messaging::{Message, Outcome, Properties, Source, Target};
use fe2o3_amqp::types::primitives::{Symbol, Value};

use crate::peer::{accepted, begin, durable, next, plain, send, take, text, unique, value, Peer};

/// No credit without a receiver; with one, the sender learns the receiver's own outcome.
pub async fn anycast(peer: &Peer) {
    let mut one = peer.connect().await;
    let mut other = peer.connect().await;
    let mut sender = one.sender(&peer.address("anycast")).await;
    let early = tokio::time::timeout(Duration::from_millis(300), begin(&mut sender, plain(text("early"))));
    assert!(early.await.is_err(), "no credit without a receiver");
    let mut receiver = Receiver::builder()
        .name(unique("anycast"))
        .source(peer.address("anycast"))
        .credit_mode(CreditMode::Manual)
        .attach(&mut other.session)
        .await
        .expect("a receiver");
    receiver.set_credit(2).await.expect("credit");
    let mut begun = Vec::new();
    for body in ["accept", "reject", "release"] {
        begun.push(begin(&mut sender, plain(text(body))).await);
    }
    let mut begun = begun.into_iter();
    assert_eq!(text("accept"), value(&take(&mut receiver).await));
    accepted(begun.next().expect("begun")).await;
    let delivery = next(&mut receiver).await;
    let unwanted = Error::new(ErrorCondition::Custom(Symbol::from("interop:unwanted")), None, None);
    receiver.reject(&delivery, unwanted).await.expect("reject");
    match begun.next().expect("begun").await.expect("an outcome") {
        Outcome::Rejected(rejected) => {
            let why = rejected.error.expect("a reason").condition;
            assert_eq!(ErrorCondition::Custom(Symbol::from("interop:unwanted")), why);
        }
        outcome => panic!("rejected expected, not {outcome:?}"),
    }
    receiver.set_credit(1).await.expect("credit");
    let delivery = next(&mut receiver).await;
    receiver.release(&delivery).await.expect("release");
    let outcome = begun.next().expect("begun").await.expect("an outcome");
    assert!(matches!(outcome, Outcome::Released(_)), "{outcome:?}");
    one.close().await; // first: without a receiver the router drains, and this client answers that even after its end
    receiver.close().await.expect("close");
    other.close().await;
}

/// Everybody gets everything.
pub async fn multicast(peer: &Peer) {
    let mut sending = peer.connect().await;
    let mut one = peer.connect().await;
    let mut other = peer.connect().await;
    let address = peer.address("multicast");
    let mut receivers = vec![
        one.receiver(&address).await,
        other.receiver(&address).await,
        other.receiver(&address).await,
    ];
    let mut sender = sending.sender(&address).await;
    let mut outcomes = Vec::new();
    for i in 0..5 {
        outcomes.push(begin(&mut sender, plain(Value::Int(i))).await);
    }
    for receiver in &mut receivers {
        for i in 0..5 {
            assert_eq!(Value::Int(i), value(&take(receiver).await));
        }
    }
    for outcome in outcomes {
        accepted(outcome).await;
    }
    for link in [sending, one, other] {
        link.close().await;
    }
}

/// A request, and its answer to a dynamic address through a sender without one.
pub async fn request(peer: &Peer) {
    let mut client = peer.connect().await;
    let mut server = peer.connect().await;
    let mut requests = server.receiver(&peer.address("anycast")).await;
    let mut replies = Receiver::builder()
        .name(unique("replies"))
        .source(Source::builder().dynamic(true).build())
        .attach(&mut client.session)
        .await
        .expect("a dynamic address");
    let address = replies
        .source()
        .as_ref()
        .and_then(|source| source.address.clone())
        .expect("an address");
    let mut sender = client.sender(&peer.address("anycast")).await;
    let properties = Properties::builder()
        .reply_to(address)
        .correlation_id("q".to_string())
        .build();
    let question = Message::builder().properties(properties).value(text("6 x 7")).build();
    let asked = begin(&mut sender, question).await;
    let delivery = take(&mut requests).await;
    accepted(asked).await;
    let asked = delivery.message().properties.clone().expect("properties");
    let mut answering = Sender::builder()
        .name(unique("answers"))
        .target(Target::builder().build())
        .attach(&mut server.session)
        .await
        .expect("a sender without an address");
    let properties = Properties::builder()
        .to(asked.reply_to.expect("reply-to"))
        .correlation_id(asked.correlation_id.expect("a correlation-id"))
        .build();
    let answer = Message::builder().properties(properties).value(text("42")).build();
    let answered = begin(&mut answering, answer).await;
    let reply = take(&mut replies).await;
    assert_eq!(text("42"), value(&reply));
    let correlation = reply.message().properties.clone().and_then(|p| p.correlation_id);
    assert_eq!(Some("q".to_string().into()), correlation);
    accepted(answered).await;
    client.close().await;
    server.close().await;
}

/// An address nobody has defined is refused. This client answers a refusal with two detaches; its session goes on. (It
/// gives the handle away before the second one has left, so it must not attach another link at once.)
pub async fn unknown(peer: &Peer) {
    let mut link = peer.connect().await;
    let nowhere = peer.address("nowhere");
    let mut sender = link.sender(&peer.address("queue")).await;
    let mut receiver = link.receiver(&peer.address("queue")).await;
    for _ in 0..3 {
        match Sender::attach(&mut link.session, unique("sender"), nowhere.as_str()).await {
            Err(SenderAttachError::RemoteClosedWithError(error)) => not_found(&error),
            other => panic!("the sender is not refused as it should be: {:?}", other.err()),
        }
        send(&mut sender, durable("still here")).await;
        assert_eq!(text("still here"), value(&take(&mut receiver).await));
        match Receiver::attach(&mut link.session, unique("receiver"), nowhere.as_str()).await {
            Err(ReceiverAttachError::RemoteClosedWithError(error)) => not_found(&error),
            other => panic!("the receiver is not refused as it should be: {:?}", other.err()),
        }
        send(&mut sender, durable("still here")).await;
        assert_eq!(text("still here"), value(&take(&mut receiver).await));
    }
    receiver.close().await.expect("close");
    link.close().await;
}

fn not_found(error: &Error) {
    assert_eq!(ErrorCondition::AmqpError(AmqpError::NotFound), error.condition);
}
