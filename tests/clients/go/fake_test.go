// Package fencegatetest has the tests of the Go client: the rules of calls and leases with servers in place of
// gateways, and faults of real gateways, whose addresses tests/clients/test_go.py gives.
package fencegatetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"fencegate"
)

const (
	acquisition  = "POST /v1/leases"
	cancellation = "POST /v1/leases/cancel"
	renewal      = "POST /v1/leases/L/renew"
	release      = "DELETE /v1/leases/L"
	inspection   = "GET /v1/leases/L"
	write        = "POST /v1/writes"
	history      = "GET /v1/history"

	// What must happen happens in this time also on a busy machine.
	generous = 20 * time.Second
)

// reply is an answer. An error whose body is not JSON is that of a proxy; the status 0 closes the connection.
type reply struct {
	status     int
	body       string
	retryAfter int
	header     http.Header
}

var (
	noAnswer = reply{}
	released = reply{status: 204}
	applied  = reply{status: 200, body: `{"write_id": "W", "results": [{"rows_affected": 1}], "fences": []}`}
)

// fakeGateway is a server in place of a gateway, whose answers a test chooses.
type fakeGateway struct {
	*httptest.Server
	mu      sync.Mutex
	calls   []string
	keys    []string
	bodies  []string
	watches int
}

// newFake starts a fake. handler answers a call, of which so many have come before; watch answers a request for the
// stream that watches the lease, which is refused if it is nil.
func newFake(t *testing.T, handler func(call string, before int) reply,
	watch func(w http.ResponseWriter, r *http.Request, before int)) *fakeGateway {
	fake := &fakeGateway{}
	fake.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			fake.mu.Lock()
			before := fake.watches
			fake.watches++
			fake.mu.Unlock()
			if watch == nil {
				w.WriteHeader(404)
				return
			}
			watch(w, r, before)
			return
		}
		body, _ := io.ReadAll(r.Body)
		call := r.Method + " " + r.URL.Path
		before := fake.record(call, r.Header.Get("Idempotency-Key"), string(body))
		fake.send(w, handler(call, before))
	}))
	t.Cleanup(func() {
		fake.CloseClientConnections()
		fake.Close()
	})
	return fake
}

func (fake *fakeGateway) record(call, key, body string) int {
	fake.mu.Lock()
	defer fake.mu.Unlock()
	before := fake.count(call)
	fake.calls, fake.keys, fake.bodies = append(fake.calls, call), append(fake.keys, key), append(fake.bodies, body)
	return before
}

func (fake *fakeGateway) count(call string) int {
	count := 0
	for _, each := range fake.calls {
		if each == call {
			count++
		}
	}
	return count
}

// Count returns how often a call has come.
func (fake *fakeGateway) Count(call string) int {
	fake.mu.Lock()
	defer fake.mu.Unlock()
	return fake.count(call)
}

func (fake *fakeGateway) send(w http.ResponseWriter, answer reply) {
	if answer.status == 0 {
		panic(http.ErrAbortHandler)
	}
	kind := "text/plain"
	if strings.HasPrefix(answer.body, "{") {
		kind = "application/json"
		if answer.status >= 300 {
			kind = "application/problem+json"
		}
	}
	w.Header().Set("Content-Type", kind)
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	if answer.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(answer.retryAfter))
	}
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body)
}

// stream begins a stream of events, or continues it.
func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// granted is a lease, or its renewal.
func granted(ttlMs, validityMs int) reply {
	return reply{status: 201, body: fmt.Sprintf(
		`{"lease_id": "L", "resource": "a", "fencing_token": 9007199254740991, "served_ms": 0,
		"ttl_ms": %d, "validity_ms": %d}`, ttlMs, validityMs)}
}

func problem(status int, slug string, members ...string) reply {
	more := strings.Join(append([]string{""}, members...), ", ")
	body := fmt.Sprintf(`{"type": "/problems/%s", "title": "t", "detail": "d", "request_id": "r"%s}`, slug, more)
	return reply{status: status, body: body}
}

func (answer reply) after(seconds int) reply {
	answer.retryAfter = seconds
	return answer
}

// client returns a client of the fakes. change, which may be nil, changes its options.
func client(t *testing.T, change func(*fencegate.Options), fakes ...*fakeGateway) *fencegate.Client {
	t.Helper()
	options := fencegate.Options{Logf: t.Logf}
	for _, fake := range fakes {
		options.URLs = append(options.URLs, fake.URL)
	}
	if change != nil {
		change(&options)
	}
	made, err := fencegate.New(options)
	must(t, err)
	return made
}

func retryFor(duration time.Duration) func(*fencegate.Options) {
	return func(options *fencegate.Options) { options.RetryFor = duration }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, condition bool, format string, arguments ...any) {
	t.Helper()
	if !condition {
		t.Fatalf(format, arguments...)
	}
}

// expectError requires that an error has one of a type in it, and returns that.
func expectError[T error](t *testing.T, err error) T {
	t.Helper()
	var found T
	if !errors.As(err, &found) {
		t.Fatalf("%v (%T) is no %T", err, err, found)
	}
	return found
}

func expectProblem(t *testing.T, err error, slug string) *fencegate.Problem {
	t.Helper()
	found := expectError[*fencegate.Problem](t, err)
	expect(t, found.Slug == slug, "%v", err)
	return found
}

// await waits for an event.
func await(t *testing.T, goal string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(generous):
		t.Fatalf("not in time: %s", goal)
	}
}

// eventually waits until the condition is true.
func eventually(t *testing.T, goal string, condition func() bool) {
	t.Helper()
	// There is no event to wait for.
	for until := time.Now().Add(generous); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", goal)
		}
	}
}

// background is the context of calls that are not to end before their answer.
func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*generous)
	t.Cleanup(cancel)
	return ctx
}
