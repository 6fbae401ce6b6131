//! Connections, links and messages in few words. What does not go well ends the program.

use std::sync::atomic::{AtomicU32, Ordering};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::{Delivery, DeliveryFut, Sendable};
use fe2o3_amqp::link::{Receiver, SendError, Sender};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{AmqpValue, Body, Header, Message, Outcome};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Connection, Session};

/// Where the suite is, and what its addresses begin with.
pub struct Peer {
    pub url: String,
    pub prefix: String,
}

/// A connection with one session.
pub struct Link {
    pub connection: ConnectionHandle<()>,
    pub session: SessionHandle<()>,
}

pub type Received = Delivery<Body<Value>>;
pub type Begun = DeliveryFut<Result<Outcome, SendError>>;

/// Names of links and containers that are used once.
pub fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{number}", std::process::id())
}

impl Peer {
    pub fn address(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub async fn connect(&self) -> Link {
        self.connect_as(&unique("fe2o3"), 65536).await
    }

    pub async fn connect_as(&self, container: &str, max_frame_size: u32) -> Link {
        let mut connection = Connection::builder()
            .container_id(container)
            .max_frame_size(max_frame_size)
            .sasl_profile(SaslProfile::Anonymous)
            .open(self.url.as_str())
            .await
            .expect("a connection");
        let session = Session::begin(&mut connection).await.expect("a session");
        Link { connection, session }
    }
}

impl Link {
    pub async fn sender(&mut self, address: &str) -> Sender {
        Sender::attach(&mut self.session, unique("sender"), address)
            .await
            .expect("a sender")
    }

    pub async fn receiver(&mut self, address: &str) -> Receiver {
        Receiver::attach(&mut self.session, unique("receiver"), address)
            .await
            .expect("a receiver")
    }

    pub async fn close(mut self) {
        self.session.end().await.expect("end");
        self.connection.close().await.expect("close");
    }
}

pub fn text(text: &str) -> Value {
    Value::String(text.to_string())
}

pub fn durable(body: &str) -> Message<AmqpValue<Value>> {
    let header = Header::builder().durable(true).build();
    Message::builder().header(header).value(text(body)).build()
}

pub fn plain(body: Value) -> Message<AmqpValue<Value>> {
    Message::builder().value(body).build()
}

pub async fn begin(sender: &mut Sender, message: Message<AmqpValue<Value>>) -> Begun {
    let sendable = Sendable::builder().message(message).build();
    sender.send_batchable(sendable).await.expect("sent")
}

pub async fn accepted(begun: Begun) {
    let outcome = begun.await.expect("an outcome");
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}

pub async fn send(sender: &mut Sender, message: Message<AmqpValue<Value>>) {
    accepted(begin(sender, message).await).await;
}

pub async fn next(receiver: &mut Receiver) -> Received {
    receiver.recv::<Body<Value>>().await.expect("a message")
}

/// The next message, accepted.
pub async fn take(receiver: &mut Receiver) -> Received {
    let delivery = next(receiver).await;
    receiver.accept(&delivery).await.expect("accept");
    delivery
}

pub fn value(delivery: &Received) -> Value {
    match delivery.body() {
        Body::Value(AmqpValue(value)) => value.clone(),
        other => panic!("a value expected, not {other:?}"),
    }
}
