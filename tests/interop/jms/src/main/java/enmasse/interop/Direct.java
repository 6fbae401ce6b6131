package enmasse.interop;

import static enmasse.interop.Main.check;
import static enmasse.interop.Main.contains;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Main.texts;

import enmasse.interop.Main.Peer;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;

/** Addresses that store nothing: what they cannot do is said. */
final class Direct {
    static void anycast(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Session far = other.createSession();
            Queue address = session.createQueue(peer.address("anycast"));
            MessageConsumer consumer = session.createConsumer(address);
            MessageProducer producer = far.createProducer(address);
            producer.send(far.createTextMessage("one"));
            far.createProducer(null).send(address, far.createTextMessage("two"));
            check("directly", List.of("one", "two"), texts(consumer, 2));
            refused(far, address, producer);
            expect(JMSException.class, "a selector", () -> session.createConsumer(address, "colour = 'red'"));
            expect(JMSException.class, "a browser", () -> session.createBrowser(address).getEnumeration());
        }
    }

    static void multicast(Peer peer) throws Exception {
        try (Connection connection = peer.connectAs(peer.address("client-multicast")); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Session far = other.createSession();
            Topic address = session.createTopic(peer.address("multicast"));
            MessageConsumer first = session.createConsumer(address);
            MessageConsumer second = session.createConsumer(address);
            MessageProducer producer = far.createProducer(address);
            producer.send(far.createTextMessage("one"));
            far.createProducer(null).send(address, far.createTextMessage("two"));
            check("the first", List.of("one", "two"), texts(first, 2));
            check("the second", List.of("one", "two"), texts(second, 2));
            refused(far, address, producer);
            expect(JMSException.class, "durable", () -> session.createDurableConsumer(address, "a"));
            expect(JMSException.class, "shared", () -> session.createSharedConsumer(address, "b"));
        }
    }

    /** A delay needs somebody who keeps the message. */
    private static void refused(Session session, jakarta.jms.Destination address, MessageProducer fixed) throws Exception {
        fixed.setDeliveryDelay(10);
        expect(JMSException.class, "a delay", () -> {
            fixed.send(session.createTextMessage("later"));
            return null;
        });
        JMSException error = expect(JMSException.class, "a delay by the relay", () -> {
            MessageProducer anonymous = session.createProducer(null);
            anonymous.setDeliveryDelay(10);
            anonymous.send(address, session.createTextMessage("later"));
            return null;
        });
        contains("why", "delay", error.getMessage());
    }

    private Direct() {}
}
