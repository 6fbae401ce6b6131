package enmasse.interop;

import static enmasse.interop.Main.LIMIT;
import static enmasse.interop.Main.check;
import static enmasse.interop.Main.expect;
import static enmasse.interop.Main.text;
import static enmasse.interop.Main.texts;

import enmasse.interop.Main.Peer;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import java.util.List;

/** Temporary queues and topics, reached from a second connection. */
final class Temporary {
    /** How another client learns of a temporary destination: it stands in a message. */
    static Destination told(Peer peer, Session from, Session to, Destination destination, String queue) throws Exception {
        Message message = from.createTextMessage("where to answer");
        message.setJMSReplyTo(destination);
        try (MessageProducer producer = from.createProducer(from.createQueue(peer.address(queue)));
            MessageConsumer consumer = to.createConsumer(to.createQueue(peer.address(queue)))) {
            producer.send(message);
            return consumer.receive(LIMIT).getJMSReplyTo();
        }
    }

    static void queue(Peer peer) throws Exception {
        try (Connection owner = peer.connect(); Connection other = peer.connect()) {
            Session session = owner.createSession();
            Session far = other.createSession();
            TemporaryQueue queue = session.createTemporaryQueue();
            Destination seen = told(peer, session, far, queue, "told-queue");
            check("its name", queue.getQueueName(), ((jakarta.jms.Queue) seen).getQueueName());
            MessageProducer fixed = far.createProducer(seen);
            MessageProducer anonymous = far.createProducer(null);
            fixed.send(far.createTextMessage("one"));
            anonymous.send(seen, far.createTextMessage("two"));
            MessageConsumer consumer = session.createConsumer(queue);
            check("kept until somebody came", List.of("one", "two"), texts(consumer, 2));
            fixed.send(far.createTextMessage("three"));
            check("straight on", List.of("three"), texts(consumer, 1));
            MessageConsumer second = session.createConsumer(queue, "half = TRUE");
            consumer.close();
            Message odd = far.createTextMessage("odd");
            odd.setBooleanProperty("half", false);
            Message even = far.createTextMessage("even");
            even.setBooleanProperty("half", true);
            fixed.send(odd);
            fixed.send(even);
            check("by selector", "even", text(second.receive(LIMIT)));
            second.close();
            check("the rest", List.of("odd"), texts(session.createConsumer(queue), 1));
        }
    }

    static void topic(Peer peer) throws Exception {
        try (Connection owner = peer.connect(); Connection other = peer.connect()) {
            Session session = owner.createSession();
            Session far = other.createSession();
            TemporaryTopic topic = session.createTemporaryTopic();
            Destination seen = told(peer, session, far, topic, "told-topic");
            MessageConsumer first = session.createConsumer(topic);
            MessageConsumer second = session.createConsumer(topic);
            far.createProducer(seen).send(far.createTextMessage("one"));
            far.createProducer(null).send(seen, far.createTextMessage("two"));
            check("the first subscriber", List.of("one", "two"), texts(first, 2));
            check("the second subscriber", List.of("one", "two"), texts(second, 2));
        }
    }

    static void lifetime(Peer peer) throws Exception {
        try (Connection other = peer.connect()) {
            Session far = other.createSession();
            Destination[] seen = new Destination[2];
            MessageProducer[] fixed = new MessageProducer[2];
            try (Connection owner = peer.connect()) {
                Session session = owner.createSession();
                TemporaryQueue deleted = session.createTemporaryQueue();
                TemporaryQueue left = session.createTemporaryQueue();
                seen[0] = told(peer, session, far, deleted, "told-lifetime");
                seen[1] = told(peer, session, far, left, "told-lifetime");
                for (int i = 0; i < 2; i++) {
                    fixed[i] = far.createProducer(seen[i]);
                    fixed[i].send(far.createTextMessage("while it is there"));
                }
                deleted.delete();
                gone(far, seen[0], fixed[0]);
                fixed[1].send(far.createTextMessage("the other one is there"));
            }
            gone(far, seen[1], fixed[1]);
        }
    }

    /** Nobody who sends to it may believe that it went well. */
    private static void gone(Session far, Destination seen, MessageProducer fixed) throws Exception {
        Message message = far.createTextMessage("too late");
        expect(JMSException.class, "the producer it had", () -> send(fixed, message));
        expect(JMSException.class, "the anonymous producer", () -> {
            try (MessageProducer anonymous = far.createProducer(null)) {
                anonymous.send(seen, message);
            }
            return null;
        });
        expect(InvalidDestinationException.class, "a new producer", () -> far.createProducer(seen));
    }

    private static Object send(MessageProducer producer, Message message) throws JMSException {
        producer.send(message);
        return null;
    }

    static void requestReply(Peer peer) throws Exception {
        try (Connection client = peer.connect(); Connection server = peer.connect()) {
            Session serving = server.createSession();
            MessageConsumer requests = serving.createConsumer(serving.createQueue(peer.address("request")));
            MessageProducer answers = serving.createProducer(null);
            answers.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            requests.setMessageListener(request -> {
                try {
                    Message answer = serving.createTextMessage("re: " + text(request));
                    answer.setJMSCorrelationID(request.getJMSMessageID());
                    answers.send(request.getJMSReplyTo(), answer);
                } catch (JMSException error) {
                    throw new IllegalStateException(error);
                }
            });
            Session asking = client.createSession();
            TemporaryQueue here = asking.createTemporaryQueue();
            MessageConsumer answered = asking.createConsumer(here);
            MessageProducer producer = asking.createProducer(asking.createQueue(peer.address("request")));
            for (int i = 0; i < 20; i++) {
                Message request = asking.createTextMessage("question " + i);
                request.setJMSReplyTo(here);
                producer.send(request);
                Message answer = answered.receive(LIMIT);
                check("the answer", "re: question " + i, text(answer));
                check("its correlation", request.getJMSMessageID(), answer.getJMSCorrelationID());
            }
        }
    }

    private Temporary() {}
}
