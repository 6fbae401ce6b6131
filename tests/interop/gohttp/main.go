// Command interop sends and receives over HTTP with Go's net/http: interop URL PROTOCOL QUEUE [CA]. PROTOCOL is
// what the answers must be of, HTTP/1.1 or HTTP/2.0. The queue is empty; events is a topic. Exit status 0 if all held.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	senders = 20
	each    = 10
)

type peer struct {
	client        *http.Client
	url, protocol string
	queue         string
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// ask sends a request and returns its answer, which has the status.
func (p peer) ask(method, path string, body []byte, status int) *http.Response {
	request, err := http.NewRequest(method, p.url+path, bytes.NewReader(body))
	if err != nil {
		fail("%s: %v", path, err)
	}
	request.Header.Set("Content-Type", "text/plain")
	answer, err := p.client.Do(request)
	if err != nil {
		fail("%s %s: %v", method, path, err)
	}
	if answer.StatusCode != status || answer.Proto != p.protocol {
		text, _ := io.ReadAll(answer.Body)
		fail("%s %s: %s %s %s", method, path, answer.Proto, answer.Status, text)
	}
	return answer
}

// done is ask for answers of which nothing more is wanted.
func (p peer) done(method, path string, body []byte, status int) {
	answer := p.ask(method, path, body, status)
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
}

// jobs sends messages side by side, takes them all and accepts each.
func (p peer) jobs() {
	var group sync.WaitGroup
	for n := 0; n < senders; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			for m := 0; m < each; m++ {
				p.done("POST", p.queue+"/messages", []byte(fmt.Sprintf("%d-%d", n, m)), 201)
			}
		}(n)
	}
	group.Wait()
	found := map[string]bool{}
	for len(found) < senders*each {
		answer := p.ask("POST", p.queue+"/messages/next?wait=60&count=100", nil, 200)
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
			var line struct{ Body, Location string }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				fail("%q: %v", lines.Text(), err)
			}
			if found[line.Body] {
				fail("%s comes twice", line.Body)
			}
			found[line.Body] = true
			p.done("DELETE", line.Location, nil, 204)
			if len(found) == 1 {
				p.done("DELETE", line.Location, nil, 410)
			}
		}
		_ = answer.Body.Close()
	}
	p.done("POST", "/v1/nowhere/messages", []byte("x"), 404)
	p.done("POST", p.queue+"/messages", make([]byte, 17<<20), 413)
}

// events reads a stream while it sends.
func (p peer) events() {
	answer := p.ask("GET", "/v1/events/%23/events", nil, 200)
	lines := bufio.NewScanner(answer.Body)
	next := func(begin string) string {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), begin) {
				return strings.TrimPrefix(lines.Text(), begin)
			}
		}
		fail("the stream ended: %v", lines.Err())
		return ""
	}
	next("retry")
	for n := 0; n < each; n++ {
		p.done("POST", "/v1/events/go/messages", []byte(fmt.Sprint(n)), 201)
		var event struct{ Body, To string }
		if err := json.Unmarshal([]byte(next("data: ")), &event); err != nil {
			fail("%v", err)
		}
		if event.Body != fmt.Sprint(n) || event.To != "events/go" {
			fail("event %d is %v", n, event)
		}
	}
	_ = answer.Body.Close()
}

func main() {
	transport := &http.Transport{MaxIdleConnsPerHost: senders, ForceAttemptHTTP2: true}
	if len(os.Args) > 4 {
		text, err := os.ReadFile(os.Args[4])
		roots := x509.NewCertPool()
		if err != nil || !roots.AppendCertsFromPEM(text) {
			fail("%s: %v", os.Args[4], err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	p := peer{&http.Client{Transport: transport, Timeout: 240 * time.Second}, os.Args[1], os.Args[2], "/v1/" + os.Args[3]}
	p.jobs()
	p.events()
}
