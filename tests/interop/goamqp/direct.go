package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"
)

// What routers carry from link to link.

// anycast: no credit without a receiver; with one, the sender learns the receiver's own outcome.
func anycast(p peer) {
	one, other := p.connect(nil), p.connect(nil)
	defer one.close()
	defer other.close()
	sender := one.sender(p.address("anycast"), nil)
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	_, err := sender.SendWithReceipt(short, &amqp.Message{Value: "early"}, nil)
	cancel()
	var starved *amqp.Error
	check("no credit without a receiver", true, errors.As(err, &starved))
	check("no credit without a receiver", amqp.ErrCondTransferLimitExceeded, starved.Condition)
	receiver := other.receiver(p.address("anycast"), &amqp.ReceiverOptions{Credit: -1})
	must("credit", receiver.IssueCredit(2))
	accepted := begin(sender, &amqp.Message{Value: "accept"})
	rejected := begin(sender, &amqp.Message{Value: "reject"})
	released := begin(sender, &amqp.Message{Value: "release"})
	ctx, cancel := soon()
	defer cancel()
	message := next(receiver)
	check("first", "accept", message.Value)
	accept(receiver, message)
	check("accepted", "*encoding.StateAccepted", fmt.Sprintf("%T", accepted()))
	must("reject", receiver.RejectMessage(ctx, next(receiver), &amqp.Error{Condition: "interop:unwanted"}))
	outcome, ok := rejected().(*amqp.StateRejected)
	check("rejected", true, ok)
	check("why", amqp.ErrCond("interop:unwanted"), outcome.Error.Condition)
	check("third is not sent beyond the credit", true, receiver.Prefetched() == nil)
	must("credit", receiver.IssueCredit(1))
	must("release", receiver.ReleaseMessage(ctx, next(receiver)))
	check("released", "*encoding.StateReleased", fmt.Sprintf("%T", released()))
}

// multicast: everybody gets everything.
func multicast(p peer) {
	sending, one, other := p.connect(nil), p.connect(nil), p.connect(nil)
	defer sending.close()
	defer one.close()
	defer other.close()
	var receivers []*amqp.Receiver
	for _, l := range []link{one, other, other} {
		receivers = append(receivers, l.receiver(p.address("multicast"), &amqp.ReceiverOptions{Credit: 10}))
	}
	sender := sending.sender(p.address("multicast"), nil)
	var outcomes []func() amqp.DeliveryState
	for i := int64(0); i < 5; i++ {
		outcomes = append(outcomes, begin(sender, &amqp.Message{Value: i}))
	}
	for _, receiver := range receivers {
		for i := int64(0); i < 5; i++ {
			message := next(receiver)
			check("body", i, message.Value)
			accept(receiver, message)
		}
	}
	for _, outcome := range outcomes {
		check("outcome", &amqp.StateAccepted{}, outcome())
	}
}

// request: a request, and its answer to a dynamic address through a sender without one.
func request(p peer) {
	client, server := p.connect(nil), p.connect(nil)
	defer client.close()
	defer server.close()
	requests := server.receiver(p.address("anycast"), &amqp.ReceiverOptions{Credit: 1})
	replies := client.receiver("", &amqp.ReceiverOptions{Credit: 1, DynamicAddress: true})
	asked := begin(client.sender(p.address("anycast"), nil), &amqp.Message{
		Value: "6 x 7", Properties: &amqp.MessageProperties{ReplyTo: text(replies.Address()), CorrelationID: "q"},
	})
	question := next(requests)
	accept(requests, question)
	check("request", &amqp.StateAccepted{}, asked())
	answered := begin(server.sender("", nil), &amqp.Message{
		Value: "42",
		Properties: &amqp.MessageProperties{
			To: question.Properties.ReplyTo, CorrelationID: question.Properties.CorrelationID,
		},
	})
	reply := next(replies)
	check("reply", "42", reply.Value)
	check("correlation", "q", reply.Properties.CorrelationID)
	accept(replies, reply)
	check("reply", &amqp.StateAccepted{}, answered())
}

// unknown: an address nobody has defined is refused, and the connection goes on.
func unknown(p peer) {
	l := p.connect(nil)
	defer l.close()
	ctx, cancel := soon()
	defer cancel()
	for what, attach := range map[string]func() error{
		"sender":   func() error { _, err := l.session.NewSender(ctx, p.address("nowhere"), nil); return err },
		"receiver": func() error { _, err := l.session.NewReceiver(ctx, p.address("nowhere"), nil); return err },
	} {
		var refusal *amqp.Error
		check(what+" refused", true, errors.As(attach(), &refusal))
		check(what, amqp.ErrCondNotFound, refusal.Condition)
	}
	send(l.sender(p.address("queue"), nil), durable("still here"))
	receiver := l.receiver(p.address("queue"), &amqp.ReceiverOptions{Credit: 1})
	message := next(receiver)
	check("the connection goes on", "still here", message.Value)
	accept(receiver, message)
	closeReceiver(receiver)
}
