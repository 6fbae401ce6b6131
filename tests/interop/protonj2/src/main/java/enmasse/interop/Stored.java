package enmasse.interop;

import static enmasse.interop.Main.check;

import enmasse.interop.Main.Link;
import enmasse.interop.Main.Peer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;

/** What brokers keep: queues and topics. */
final class Stored {
    static final ReceiverOptions BY_HAND = new ReceiverOptions().autoAccept(false).autoSettle(false).creditWindow(0);

    static Delivery next(Receiver receiver) throws Exception {
        Delivery delivery = receiver.receive(60, TimeUnit.SECONDS);
        if (delivery == null) {
            throw new AssertionError("no message from " + receiver.address() + " within 60 s");
        }
        return delivery;
    }

    static void send(Sender sender, Object body) throws Exception {
        sender.send(Message.create(body).durable(true)).awaitAccepted(60, TimeUnit.SECONDS);
    }

    /** A hundred messages pipelined, received in order. */
    static void queue(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Sender sender = link.connection().openSender(peer.address("queue"));
            List<Tracker> trackers = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                trackers.add(sender.send(Message.create("body " + i).durable(true).messageId("id-" + i)));
            }
            for (Tracker tracker : trackers) {
                tracker.awaitAccepted(60, TimeUnit.SECONDS);
            }
            Receiver receiver = link.connection().openReceiver(peer.address("queue"));
            for (int i = 0; i < 100; i++) {
                Message<String> message = next(receiver).message();
                check("body", "body " + i, message.body());
                check("id", "id-" + i, message.messageId());
                check("durable", true, message.durable());
            }
            receiver.close();
        }
    }

    /** Released and modified come again, rejected goes to the dead-letter address. */
    static void outcomes(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Connection connection = link.connection();
            send(connection.openSender(peer.address("outcomes")), "again and again");
            Receiver receiver = connection.openReceiver(peer.address("outcomes"), BY_HAND);
            receiver.addCredit(1);
            Delivery delivery = next(receiver);
            check("first attempt", 0L, delivery.message().deliveryCount());
            delivery.release();
            receiver.addCredit(1);
            delivery = next(receiver);
            check("released is no attempt", 0L, delivery.message().deliveryCount());
            delivery.modified(true, false);
            receiver.addCredit(1);
            delivery = next(receiver);
            check("failed is one", 1L, delivery.message().deliveryCount());
            delivery.reject("interop:unwanted", "not this one");
            Receiver dead = connection.openReceiver(peer.address("dead"), BY_HAND);
            dead.addCredit(1);
            delivery = next(dead);
            check("dead letter", "again and again", delivery.<String>message().body());
            delivery.accept();
            dead.close(); // answered only after the disposition was taken
            receiver.close();
        }
    }

    /** A durable subscription keeps what comes while its client is away, by detach and by loss of the connection. */
    static void topic(Peer peer) throws Exception {
        ClientOptions subscriber = new ClientOptions().id(peer.prefix() + "subscriber");
        try (Link link = peer.connect(subscriber, new ConnectionOptions())) {
            Receiver receiver = link.connection().openDurableReceiver(peer.address("topic"), "durable");
            receiver.openFuture().get(60, TimeUnit.SECONDS);
            receiver.detach();
        }
        publish(peer, "first");
        try (Link link = peer.connect(subscriber, new ConnectionOptions())) {
            Receiver receiver = link.connection().openDurableReceiver(peer.address("topic"), "durable");
            check("while detached", "first", next(receiver).<String>message().body());
            receiver.detach();
            receiver = link.connection().openDurableReceiver(peer.address("topic"), "durable");
            receiver.openFuture().get(60, TimeUnit.SECONDS);
            // and the connection goes with the link attached
        }
        publish(peer, "second");
        try (Link link = peer.connect(subscriber, new ConnectionOptions())) {
            Receiver receiver = link.connection().openDurableReceiver(peer.address("topic"), "durable");
            check("while the connection was gone", "second", next(receiver).<String>message().body());
            receiver.close(); // the end of the subscription
            publish(peer, "nobody's");
            receiver = link.connection().openDurableReceiver(peer.address("topic"), "durable");
            receiver.openFuture().get(60, TimeUnit.SECONDS);
            publish(peer, "third");
            check("a new subscription", "third", next(receiver).<String>message().body());
            receiver.close();
        }
    }

    private static void publish(Peer peer, String body) throws Exception {
        try (Link link = peer.connect()) {
            send(link.connection().openSender(peer.address("topic")), body);
        }
    }

    /** At most once, from the sender and to the receiver. */
    static void presettled(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            SenderOptions sending = new SenderOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE);
            Sender sender = link.connection().openSender(peer.address("presettled"), sending);
            for (int i = 0; i < 20; i++) {
                Tracker tracker = sender.send(Message.create(i));
                check("settled by the sender", true, tracker.settled());
            }
            sender.close();
            ReceiverOptions receiving = new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE);
            Receiver receiver = link.connection().openReceiver(peer.address("presettled"), receiving);
            for (int i = 0; i < 20; i++) {
                Delivery delivery = next(receiver);
                check("body", i, delivery.<Integer>message().body());
                check("settled by the sender", true, delivery.remoteSettled());
            }
            receiver.close();
        }
    }

    /** A mebibyte in frames of 4 KiB, both ways. */
    static void large(Peer peer) throws Exception {
        byte[] body = new byte[1 << 20];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i * 31 + (i >> 8));
        }
        try (Link link = peer.connect(new ClientOptions(), new ConnectionOptions().maxFrameSize(4096))) {
            Sender sender = link.connection().openSender(peer.address("queue"));
            sender.send(Message.create(body).durable(true)).awaitAccepted(60, TimeUnit.SECONDS);
            Receiver receiver = link.connection().openReceiver(peer.address("queue"));
            check("body", true, Arrays.equals(body, next(receiver).<byte[]>message().body()));
            receiver.close();
        }
    }

    /** What has expired is not delivered, what has not is, and tells its time to live. */
    static void ttl(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Sender sender = link.connection().openSender(peer.address("ttl"));
            sender.send(Message.create("late").durable(true).timeToLive(20)).awaitAccepted(60, TimeUnit.SECONDS);
            long expired = System.nanoTime() + 20_000_000L;
            sender.send(Message.create("in time").durable(true).timeToLive(600_000)).awaitAccepted(60, TimeUnit.SECONDS);
            while (System.nanoTime() < expired) {
                Thread.onSpinWait();
            }
            Receiver receiver = link.connection().openReceiver(peer.address("ttl"));
            Message<String> message = next(receiver).message();
            check("the one in time", "in time", message.body());
            check("ttl", true, message.timeToLive() > 0 && message.timeToLive() <= 600_000);
            receiver.close();
        }
    }

    /** What a session sends and receives takes effect with its commit; after a rollback it comes again. */
    static void transacted(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Session session = link.connection().openSession();
            session.beginTransaction(); // through a router, links with transactions are opened behind it
            Sender sender = session.openSender(peer.address("transacted"));
            Receiver receiver = session.openReceiver(peer.address("transacted"), BY_HAND);
            send(sender, "never");
            session.rollbackTransaction();
            session.beginTransaction();
            for (int i = 0; i < 10; i++) {
                send(sender, "body " + i);
            }
            session.commitTransaction();
            session.beginTransaction();
            receiver.addCredit(10);
            for (int i = 0; i < 10; i++) {
                Delivery delivery = next(receiver);
                check("what was committed", "body " + i, delivery.<String>message().body());
                delivery.accept();
            }
            send(sender, "never");
            session.rollbackTransaction();
            receiver.close(); // what was accepted in it is the receiver's until then
            receiver = session.openReceiver(peer.address("transacted"), BY_HAND);
            session.beginTransaction();
            receiver.addCredit(10);
            for (int i = 0; i < 10; i++) {
                Delivery delivery = next(receiver);
                check("again", "body " + i, delivery.<String>message().body());
                delivery.accept();
            }
            send(sender, "last");
            session.commitTransaction();
            receiver.addCredit(1);
            Delivery delivery = next(receiver);
            check("after them", "last", delivery.<String>message().body());
            delivery.accept();
            receiver.close();
        }
    }

    static final UUID ID = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");

    /** A message of many types, for another client to read. */
    static void typesSend(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Message<Object> message = Message.create((Object) List.of("a", 1, 2L, true, 0.5d));
            message.durable(true).priority((byte) 7).messageId(ID).correlationId("c").subject("s");
            message.replyTo("r").contentType("text/x").groupId("g").creationTime(1_600_000_000_123L);
            message.userId(new byte[] {0, (byte) 255}).annotation("x-opt-a", (byte) 1);
            message.property("string", "\u00e9").property("int", -5).property("long", 1L << 40);
            message.property("double", 0.25d).property("bool", false).property("uuid", ID);
            link.connection().openSender(peer.address("types")).send(message).awaitAccepted(60, TimeUnit.SECONDS);
        }
    }

    /** The same message from another client. */
    static void typesReceive(Peer peer) throws Exception {
        try (Link link = peer.connect()) {
            Receiver receiver = link.connection().openReceiver(peer.address("types"));
            Message<Object> message = next(receiver).message();
            check("body", List.of("a", 1, 2L, true, 0.5d), message.body());
            check("durable", true, message.durable());
            check("priority", (byte) 7, message.priority());
            check("message-id", ID, message.messageId());
            check("correlation-id", "c", message.correlationId());
            check("subject", "s", message.subject());
            check("reply-to", "r", message.replyTo());
            check("content-type", "text/x", message.contentType());
            check("group-id", "g", message.groupId());
            check("creation-time", 1_600_000_000_123L, message.creationTime());
            check("user-id", true, Arrays.equals(new byte[] {0, (byte) 255}, message.userId()));
            check("annotation", (byte) 1, message.annotation("x-opt-a"));
            check("string", "\u00e9", message.property("string"));
            check("int", -5, message.property("int"));
            check("long", 1L << 40, message.property("long"));
            check("double", 0.25d, message.property("double"));
            check("bool", false, message.property("bool"));
            check("uuid", ID, message.property("uuid"));
            receiver.close();
        }
    }

    private Stored() {}
}
