package enmasse.interop;

import static enmasse.interop.Main.check;
import static enmasse.interop.Main.contains;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Main.text;

import enmasse.interop.Main.Peer;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Addresses that store nothing: what they cannot do is said. */
final class Direct {
    static void anycast(Peer peer) throws Exception {
        try (Connection connection = peer.connect(); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Session far = other.createSession();
            Queue address = session.createQueue(peer.address("anycast"));
            BlockingQueue<String> came = heard(session.createConsumer(address));
            MessageProducer producer = far.createProducer(address);
            producer.send(far.createTextMessage("one"));
            far.createProducer(null).send(address, far.createTextMessage("two"));
            check("directly", List.of("one", "two"), List.of(came.take(), came.take()));
            refused(far, address, producer);
            Session more = connection.createSession();
            expect(JMSException.class, "a selector", () -> more.createConsumer(address, "colour = 'red'"));
            expect(JMSException.class, "a browser", () -> more.createBrowser(address).getEnumeration());
        }
    }

    static void multicast(Peer peer) throws Exception {
        try (Connection connection = peer.connectAs(peer.address("client-multicast")); Connection other = peer.connect()) {
            Session session = connection.createSession();
            Session far = other.createSession();
            Topic address = session.createTopic(peer.address("multicast"));
            BlockingQueue<String> first = heard(session.createConsumer(address));
            BlockingQueue<String> second = heard(session.createConsumer(address));
            MessageProducer producer = far.createProducer(address);
            producer.send(far.createTextMessage("one"));
            far.createProducer(null).send(address, far.createTextMessage("two"));
            check("the first", List.of("one", "two"), List.of(first.take(), first.take()));
            check("the second", List.of("one", "two"), List.of(second.take(), second.take()));
            refused(far, address, producer);
            Session more = connection.createSession();
            expect(JMSException.class, "durable", () -> more.createDurableConsumer(address, "a"));
            expect(JMSException.class, "shared", () -> more.createSharedConsumer(address, "b"));
        }
    }

    /** What a consumer takes as it comes: nobody's send returns before. */
    private static BlockingQueue<String> heard(MessageConsumer consumer) throws JMSException {
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        consumer.setMessageListener(message -> {
            try {
                came.add(text(message));
            } catch (JMSException error) {
                came.add(error.toString());
            }
        });
        return came;
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
