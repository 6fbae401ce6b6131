package enmasse.interop;

import static enmasse.interop.Main.LIMIT;
import static enmasse.interop.Main.check;
import static enmasse.interop.Main.contains;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Main.text;
import static enmasse.interop.Main.texts;

import enmasse.interop.Main.Peer;
import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;

/** Durable, shared and shared durable subscriptions. */
final class Subscriptions {
    static void publish(Peer peer, String topic, String... bodies) throws JMSException {
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession();
            MessageProducer producer = session.createProducer(session.createTopic(peer.address(topic)));
            for (String body : bodies) {
                producer.send(session.createTextMessage(body));
            }
        }
    }

    static void durable(Peer peer) throws Exception {
        String id = peer.address("client-durable");
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("durable"));
            try (MessageConsumer consumer = session.createDurableConsumer(topic, "news")) {
                publish(peer, "durable", "while it is there");
                check("directly", List.of("while it is there"), texts(consumer, 1));
            }
            publish(peer, "durable", "while it is closed");
        }
        publish(peer, "durable", "while the connection is closed");
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("durable"));
            MessageConsumer consumer = session.createDurableConsumer(topic, "news");
            check("stored", List.of("while it is closed", "while the connection is closed"), texts(consumer, 2));
            consumer.close();
            session.unsubscribe("news");
        }
    }

    /** What is unsubscribed stores nothing any more, whichever connection and broker it was made through. */
    static void unsubscribe(Peer peer) throws Exception {
        String id = peer.address("client-unsubscribe");
        String[] names = {"first", "second", "third"};
        String[] topics = {"unsubscribe", "elsewhere", "unsubscribe"}; // on two brokers, where there are two
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            for (int i = 0; i < names.length; i++) {
                session.createDurableConsumer(session.createTopic(peer.address(topics[i])), names[i]).close();
            }
            publish(peer, "unsubscribe", "one");
            publish(peer, "elsewhere", "one");
            session.unsubscribe("first");
        }
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            session.unsubscribe("second");
            expect(InvalidDestinationException.class, "twice", () -> {
                session.unsubscribe("second");
                return null;
            });
            expect(InvalidDestinationException.class, "one that never was", () -> {
                session.unsubscribe("never");
                return null;
            });
            Topic topic = session.createTopic(peer.address("unsubscribe"));
            MessageConsumer third = session.createDurableConsumer(topic, "third");
            check("the one that stayed", List.of("one"), texts(third, 1));
            expect(JMSException.class, "one that is in use", () -> {
                session.unsubscribe("third");
                return null;
            });
            MessageConsumer first = session.createDurableConsumer(topic, "first");
            Topic elsewhere = session.createTopic(peer.address("elsewhere"));
            MessageConsumer second = session.createDurableConsumer(elsewhere, "second");
            publish(peer, "unsubscribe", "two");
            publish(peer, "elsewhere", "two");
            check("what was stored is gone", List.of("two"), texts(first, 1));
            check("there too", List.of("two"), texts(second, 1));
            check("and the one that stayed", List.of("two"), texts(third, 1));
            for (MessageConsumer consumer : List.of(first, second, third)) {
                consumer.close();
            }
            for (String name : names) {
                session.unsubscribe(name);
            }
        }
    }

    /** What both consumers of a shared subscription got, sorted. */
    private static List<String> together(MessageConsumer one, MessageConsumer other, int count) throws JMSException {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            for (MessageConsumer consumer : List.of(one, other)) {
                var message = consumer.receive(10);
                if (message != null) {
                    found.add(text(message));
                }
            }
        }
        if (one.receiveNoWait() != null || other.receiveNoWait() != null) {
            throw new AssertionError("more than was published came");
        }
        found.sort(null);
        return found;
    }

    private static String[] numbered(int count) {
        String[] bodies = new String[count];
        for (int i = 0; i < count; i++) {
            bodies[i] = String.format("%03d", i);
        }
        return bodies;
    }

    static void shared(Peer peer) throws Exception {
        try (Connection first = peer.connect(); Connection second = peer.connect()) {
            Session one = first.createSession();
            Session other = second.createSession();
            Topic topic = one.createTopic(peer.address("shared"));
            MessageConsumer left = one.createSharedConsumer(topic, "work");
            MessageConsumer right = other.createSharedConsumer(topic, "work");
            MessageConsumer alone = other.createSharedConsumer(topic, "watch");
            publish(peer, "shared", numbered(40));
            check("each once", List.of(numbered(40)), together(left, right, 40));
            check("another subscription gets all", List.of(numbered(40)), texts(alone, 40));
        }
    }

    static void sharedDurable(Peer peer) throws Exception {
        String id = peer.address("client-shared");
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("shared-durable"));
            MessageConsumer left = session.createSharedDurableConsumer(topic, "durably");
            MessageConsumer right = session.createSharedDurableConsumer(topic, "durably");
            publish(peer, "shared-durable", numbered(20));
            check("each once", List.of(numbered(20)), together(left, right, 20));
        }
        publish(peer, "shared-durable", "while away");
        try (Connection connection = peer.connectAs(id)) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("shared-durable"));
            MessageConsumer consumer = session.createSharedDurableConsumer(topic, "durably");
            check("stored", List.of("while away"), texts(consumer, 1));
            consumer.close();
            session.unsubscribe("durably");
            expect(InvalidDestinationException.class, "twice", () -> {
                session.unsubscribe("durably");
                return null;
            });
        }
    }

    static void sharedDurableGlobal(Peer peer) throws Exception {
        String name = peer.address("everybody");
        try (Connection first = peer.connect(); Connection second = peer.connect()) {
            Session one = first.createSession();
            Session other = second.createSession();
            Topic topic = one.createTopic(peer.address("shared-global"));
            MessageConsumer left = one.createSharedDurableConsumer(topic, name);
            MessageConsumer right = other.createSharedDurableConsumer(topic, name);
            publish(peer, "shared-global", numbered(20));
            check("each once", List.of(numbered(20)), together(left, right, 20));
            try (Connection third = peer.connect()) {
                expect(JMSException.class, "in use", () -> {
                    third.createSession().unsubscribe(name);
                    return null;
                });
            }
            publish(peer, "shared-global", "one more");
            check("nobody lost it", List.of("one more"), together(left, right, 1));
        }
        publish(peer, "shared-global", "while away");
        try (Connection connection = peer.connect()) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("shared-global"));
            MessageConsumer consumer = session.createSharedDurableConsumer(topic, name);
            check("stored", List.of("while away"), texts(consumer, 1));
            consumer.close();
            session.unsubscribe(name);
        }
    }

    static void noLocal(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Topic topic = session.createTopic(peer.address("local"));
            MessageConsumer consumer = session.createConsumer(topic, null, true);
            session.createProducer(topic).send(session.createTextMessage("own"));
            session.createProducer(null).send(topic, session.createTextMessage("own, by the relay"));
            Session far = other.createSession();
            far.createProducer(null).send(topic, far.createTextMessage("another's"));
            check("only what others send", List.of("another's"), texts(consumer, 1));
        }
    }

    static void onQueue(Peer peer) throws Exception {
        try (Connection connection = peer.connectAs(peer.address("client-on-queue"))) {
            Session session = connection.createSession();
            Topic notOne = session.createTopic(peer.address("plain"));
            JMSException error = expect(JMSException.class, "durable", () -> session.createDurableConsumer(notOne, "a"));
            contains("why", "not configured for topic support", error.getMessage());
            error = expect(JMSException.class, "shared", () -> session.createSharedConsumer(notOne, "b"));
            contains("why", "not configured for topic support", error.getMessage());
            error = expect(JMSException.class, "both", () -> session.createSharedDurableConsumer(notOne, "c"));
            contains("why", "not configured for topic support", error.getMessage());
        }
    }

    private Subscriptions() {}
}
