package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// What brokers keep: queues and topics.

// queue: a hundred messages pipelined, received in order.
func queue(p peer) {
	l := p.connect(nil)
	defer l.close()
	sender := l.sender(p.address("queue"), nil)
	var outcomes []func() amqp.DeliveryState
	for i := 0; i < 100; i++ {
		message := durable(fmt.Sprint("body ", i))
		message.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint("id-", i)}
		outcomes = append(outcomes, begin(sender, message))
	}
	for _, outcome := range outcomes {
		check("outcome", &amqp.StateAccepted{}, outcome())
	}
	receiver := l.receiver(p.address("queue"), &amqp.ReceiverOptions{Credit: 10})
	for i := 0; i < 100; i++ {
		message := next(receiver)
		check("body", fmt.Sprint("body ", i), message.Value)
		check("id", fmt.Sprint("id-", i), message.Properties.MessageID)
		check("durable", true, message.Header.Durable)
		accept(receiver, message)
	}
	closeReceiver(receiver)
	drain(l, sender, p.address("queue"))
}

// drain: DrainCredit is answered if credit is left, if it is used up, and if messages wait beyond it.
func drain(l link, sender *amqp.Sender, address string) {
	for _, stored := range []int{0, 1, 5, 6, 12} {
		for i := 0; i < stored; i++ {
			send(sender, durable("to be drained"))
		}
		receiver := l.receiver(address, &amqp.ReceiverOptions{Credit: -1})
		for left := stored; ; left -= 5 {
			must("credit", receiver.IssueCredit(5))
			for i := 0; i < left && i < 5; i++ {
				accept(receiver, next(receiver))
			}
			ctx, cancel := soon()
			must(fmt.Sprint("drain with ", left, " messages"), receiver.DrainCredit(ctx, nil))
			cancel()
			check("nothing more than there is", true, receiver.Prefetched() == nil)
			if left <= 5 {
				break
			}
		}
		closeReceiver(receiver)
	}
}

// outcomes: released and modified come again, rejected goes to the dead-letter address.
func outcomes(p peer) {
	l := p.connect(nil)
	defer l.close()
	send(l.sender(p.address("outcomes"), nil), durable("again and again"))
	receiver := l.receiver(p.address("outcomes"), &amqp.ReceiverOptions{Credit: 1})
	ctx, cancel := soon()
	defer cancel()
	message := next(receiver)
	check("first attempt", uint32(0), message.Header.DeliveryCount)
	must("release", receiver.ReleaseMessage(ctx, message))
	message = next(receiver)
	check("released is no attempt", uint32(0), message.Header.DeliveryCount)
	must("modify", receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	message = next(receiver)
	check("failed is one", uint32(1), message.Header.DeliveryCount)
	unwanted := &amqp.Error{Condition: "interop:unwanted", Description: "not this one"}
	must("reject", receiver.RejectMessage(ctx, message, unwanted))
	dead := l.receiver(p.address("dead"), &amqp.ReceiverOptions{Credit: 1})
	message = next(dead)
	check("dead letter", "again and again", message.Value)
	accept(dead, message)
	closeReceiver(dead)
	closeReceiver(receiver)
}

// topic: a durable subscription keeps what comes while its client is away. This client detaches by closing only, which
// ends a subscription; so it goes with its connection.
func topic(p peer) {
	subscribe := func() (link, *amqp.Receiver) {
		l := p.connect(&amqp.ConnOptions{ContainerID: p.prefix + "subscriber"})
		return l, l.receiver(p.address("topic"), &amqp.ReceiverOptions{
			Name: "durable", Credit: 10, SourceCapabilities: []string{"topic"},
			SourceDurability: amqp.DurabilityUnsettledState, SourceExpiryPolicy: amqp.ExpiryPolicyNever,
		})
	}
	publish := func(body string) {
		l := p.connect(nil)
		defer l.close()
		send(l.sender(p.address("topic"), nil), durable(body))
	}
	l, _ := subscribe()
	l.close()
	publish("first")
	publish("second")
	l, receiver := subscribe()
	for _, body := range []string{"first", "second"} {
		message := next(receiver)
		check("while away", body, message.Value)
		accept(receiver, message)
	}
	closeReceiver(receiver) // the end of the subscription
	l.close()
	publish("nobody's")
	l, receiver = subscribe()
	defer l.close()
	publish("third")
	message := next(receiver)
	check("a new subscription", "third", message.Value)
	accept(receiver, message)
	closeReceiver(receiver)
}

// presettled: at most once, from the sender and to the receiver.
func presettled(p peer) {
	l := p.connect(nil)
	defer l.close()
	sender := l.sender(p.address("presettled"), &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	ctx, cancel := soon()
	defer cancel()
	for i := int64(0); i < 20; i++ {
		must("send", sender.Send(ctx, &amqp.Message{Value: i}, nil))
	}
	must("close", sender.Close(ctx))
	mode := amqp.SenderSettleModeSettled.Ptr()
	receiver := l.receiver(p.address("presettled"), &amqp.ReceiverOptions{Credit: 30, RequestedSenderSettleMode: mode})
	for i := int64(0); i < 20; i++ {
		check("body", i, next(receiver).Value)
	}
	closeReceiver(receiver)
}

// large: a mebibyte in frames of 4 KiB, both ways.
func large(p peer) {
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(i*31 + i>>8)
	}
	l := p.connect(&amqp.ConnOptions{MaxFrameSize: 4096})
	defer l.close()
	message := durable(nil)
	message.Data = [][]byte{body}
	send(l.sender(p.address("queue"), nil), message)
	receiver := l.receiver(p.address("queue"), &amqp.ReceiverOptions{Credit: 1})
	message = next(receiver)
	check("body", true, bytes.Equal(body, message.GetData()))
	accept(receiver, message)
	closeReceiver(receiver)
}

// ttl: what has expired is not delivered, what has not is, and tells its time to live.
func ttl(p peer) {
	l := p.connect(nil)
	defer l.close()
	sender := l.sender(p.address("ttl"), nil)
	message := durable("late")
	message.Header.TTL = 20 * time.Millisecond
	send(sender, message)
	expired := time.After(message.Header.TTL)
	message = durable("in time")
	message.Header.TTL = 10 * time.Minute
	send(sender, message)
	<-expired
	receiver := l.receiver(p.address("ttl"), &amqp.ReceiverOptions{Credit: 1})
	message = next(receiver)
	check("the one in time", "in time", message.Value)
	check("ttl", true, message.Header.TTL > 0 && message.Header.TTL <= 10*time.Minute)
	accept(receiver, message)
	closeReceiver(receiver)
}

var id = amqp.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

func text(s string) *string { return &s }

func typed() *amqp.Message {
	created := time.UnixMilli(1_600_000_000_123).UTC()
	return &amqp.Message{
		Header:      &amqp.MessageHeader{Durable: true, Priority: 7},
		Annotations: amqp.Annotations{"x-opt-a": int8(1)},
		Properties: &amqp.MessageProperties{
			MessageID: id, CorrelationID: "c", Subject: text("s"), ReplyTo: text("r"), ContentType: text("text/x"),
			GroupID: text("g"), CreationTime: &created, UserID: []byte{0, 255},
		},
		ApplicationProperties: map[string]any{
			"string": "é", "int": int32(-5), "long": int64(1 << 40), "double": 0.25, "bool": false, "uuid": id,
		},
		Value: []any{"a", int32(1), int64(2), true, 0.5},
	}
}

// typesSend: a message of many types, for another client to read.
func typesSend(p peer) {
	l := p.connect(nil)
	defer l.close()
	send(l.sender(p.address("types"), nil), typed())
}

// typesReceive: the same message from another client.
func typesReceive(p peer) {
	l := p.connect(nil)
	defer l.close()
	receiver := l.receiver(p.address("types"), &amqp.ReceiverOptions{Credit: 1})
	message, expected := next(receiver), typed()
	check("header", *expected.Header, *message.Header)
	check("annotations", expected.Annotations, message.Annotations)
	check("message-id", expected.Properties.MessageID, message.Properties.MessageID)
	check("correlation-id", expected.Properties.CorrelationID, message.Properties.CorrelationID)
	check("subject", expected.Properties.Subject, message.Properties.Subject)
	check("reply-to", expected.Properties.ReplyTo, message.Properties.ReplyTo)
	check("content-type", expected.Properties.ContentType, message.Properties.ContentType)
	check("group-id", expected.Properties.GroupID, message.Properties.GroupID)
	check("creation-time", *expected.Properties.CreationTime, message.Properties.CreationTime.UTC())
	check("user-id", expected.Properties.UserID, message.Properties.UserID)
	check("properties", expected.ApplicationProperties, message.ApplicationProperties)
	check("body", expected.Value, message.Value)
	accept(receiver, message)
	closeReceiver(receiver)
}
