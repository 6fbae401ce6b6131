// Command interop runs one scenario against a running suite: interop SCENARIO HOST PORT PREFIX. Exit status 0 if it held.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/Azure/go-amqp"
)

// peer is where the suite is, and what its addresses begin with.
type peer struct{ url, prefix string }

func (p peer) address(name string) string { return p.prefix + name }

// failure ends a scenario from wherever it is.
type failure struct{ error }

func check(what string, expected, actual any) {
	if !reflect.DeepEqual(expected, actual) {
		panic(failure{fmt.Errorf("%s: expected %#v, got %#v", what, expected, actual)})
	}
}

func must(what string, err error) {
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", what, err)})
	}
}

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 60*time.Second)
}

// link is a connection with one session.
type link struct {
	conn    *amqp.Conn
	session *amqp.Session
}

func (p peer) connect(options *amqp.ConnOptions) link {
	ctx, cancel := soon()
	defer cancel()
	conn, err := amqp.Dial(ctx, p.url, options)
	must("connect", err)
	session, err := conn.NewSession(ctx, nil)
	must("session", err)
	return link{conn, session}
}

func (l link) close() { _ = l.conn.Close() }

func (l link) sender(address string, options *amqp.SenderOptions) *amqp.Sender {
	ctx, cancel := soon()
	defer cancel()
	sender, err := l.session.NewSender(ctx, address, options)
	must("sender to "+address, err)
	return sender
}

func (l link) receiver(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	ctx, cancel := soon()
	defer cancel()
	receiver, err := l.session.NewReceiver(ctx, address, options)
	must("receiver from "+address, err)
	return receiver
}

func closeReceiver(receiver *amqp.Receiver) {
	ctx, cancel := soon()
	defer cancel()
	must("close", receiver.Close(ctx))
}

func next(receiver *amqp.Receiver) *amqp.Message {
	ctx, cancel := soon()
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	must("a message from "+receiver.Address(), err)
	return message
}

func accept(receiver *amqp.Receiver, message *amqp.Message) {
	ctx, cancel := soon()
	defer cancel()
	must("accept", receiver.AcceptMessage(ctx, message))
}

// begin sends a message and gives what waits for its outcome.
func begin(sender *amqp.Sender, message *amqp.Message) func() amqp.DeliveryState {
	ctx, cancel := soon()
	defer cancel()
	receipt, err := sender.SendWithReceipt(ctx, message, nil)
	must("send", err)
	return func() amqp.DeliveryState {
		ctx, cancel := soon()
		defer cancel()
		state, err := receipt.Wait(ctx)
		must("outcome", err)
		return state
	}
}

func send(sender *amqp.Sender, message *amqp.Message) {
	check("outcome", &amqp.StateAccepted{}, begin(sender, message)())
}

func durable(value any) *amqp.Message {
	return &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}, Value: value}
}

var scenarios = map[string]func(peer){
	"queue": queue, "outcomes": outcomes, "topic": topic, "presettled": presettled, "large": large, "ttl": ttl,
	"types-send": typesSend, "types-receive": typesReceive,
	"anycast": anycast, "multicast": multicast, "request": request, "unknown": unknown,
}

func run(scenario func(peer), p peer) (err error) {
	defer func() {
		if thrown, ok := recover().(failure); ok {
			err = thrown
		}
	}()
	scenario(p)
	return nil
}

func main() {
	if len(os.Args) != 5 || scenarios[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: interop SCENARIO HOST PORT PREFIX")
		os.Exit(2)
	}
	p := peer{fmt.Sprintf("amqp://%s:%s", os.Args[2], os.Args[3]), os.Args[4]}
	if err := run(scenarios[os.Args[1]], p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
