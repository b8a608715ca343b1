package fencegate

import (
	"net/http"
	"sync"
	"time"
)

// Written is a write that a TestGateway has applied. An operation has its members in the HTTP contract.
type Written struct {
	Resources      []string
	FencingToken   uint64
	Operations     []map[string]any
	IdempotencyKey string
}

// TestGateway is a gateway in memory, for the tests of services, with a clock that the test moves. Leases are exclusive
// or shared and have growing tokens; a write needs a live lease that is not only shared, and is applied once for its
// key. Operations are recorded and change no rows: Results says what they lead to. A call that waits moves the clock
// and takes no time.
//
// Methods may be called by several goroutines; fields are set before the first call.
type TestGateway struct {
	// Results returns what an operation leads to; nil: the expected number of rows.
	Results func(operation map[string]any) Result
	Reads   map[string]any // What Get returns for a path.

	mu        sync.Mutex
	time      time.Time
	noRenewal bool
	token     uint64
	holds     int
	grants    map[string]*testGrant
	fences    map[string]uint64 // of writes
	reads     map[string]uint64 // of reads under shared leases
	kept      map[string]testOutcome
	refusals  []testProblem
	writes    []Written
	events    []map[string]any
	held      []*Lease
}

// NewTestGateway makes a gateway in memory.
func NewTestGateway() *TestGateway {
	return &TestGateway{Reads: map[string]any{}, time: time.Now(), grants: map[string]*testGrant{},
		fences: map[string]uint64{}, reads: map[string]uint64{}, kept: map[string]testOutcome{}}
}

// Client returns a client of this gateway.
func (gateway *TestGateway) Client() *Client {
	options := Options{URLs: []string{"http://in-memory"}, HTTPClient: &http.Client{Transport: gateway}}
	client, _ := New(options)
	client.test = gateway
	return client
}

// Advance moves the clock. Leases are renewed meanwhile, or lost at their end after StopRenewals.
func (gateway *TestGateway) Advance(duration time.Duration) {
	end := gateway.now().Add(duration)
	for {
		var due *Lease
		var dueAt time.Time
		for _, lease := range gateway.leases() {
			if at := gateway.dueAt(lease); !at.After(end) && (due == nil || at.Before(dueAt)) {
				due, dueAt = lease, at
			}
		}
		if due == nil {
			break
		}
		gateway.moveTo(dueAt)
		if gateway.isRenewing() {
			due.confirm()
		}
		_ = due.Check()
	}
	gateway.moveTo(end)
}

// StopRenewals lets no lease be renewed from now on.
func (gateway *TestGateway) StopRenewals() {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	gateway.noRenewal = true
}

// Lose lets the lease on a resource be lost now, as if an operator had revoked it.
func (gateway *TestGateway) Lose(resource string) {
	for _, lease := range gateway.leases() {
		for _, name := range lease.resources {
			if name == resource {
				gateway.mu.Lock()
				gateway.end(gateway.grants[lease.id])
				gateway.mu.Unlock()
				lease.confirm()
			}
		}
	}
}

// RaiseFence lets a newer holder write, so that the next write under the present lease is refused as stale.
func (gateway *TestGateway) RaiseFence(resource string) {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	gateway.token++
	gateway.fences[resource] = gateway.token
}

// RefuseWrite lets the next write be refused by this problem: RefuseWrite("expectation-failed", 409, nil).
func (gateway *TestGateway) RefuseWrite(slug string, status int, members map[string]any) {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	gateway.refusals = append(gateway.refusals, testProblem{slug, status, members})
}

// Writes returns the writes that were applied.
func (gateway *TestGateway) Writes() []Written {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	return append([]Written(nil), gateway.writes...)
}

func (gateway *TestGateway) now() time.Time {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	return gateway.time
}

func (gateway *TestGateway) moveTo(at time.Time) {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	if at.After(gateway.time) {
		gateway.time = at
	}
}

func (gateway *TestGateway) add(lease *Lease) {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	gateway.held = append(gateway.held, lease)
}

// leases returns those that are not over.
func (gateway *TestGateway) leases() []*Lease {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	var held []*Lease
	for _, lease := range gateway.held {
		if lease.ctx.Err() == nil {
			held = append(held, lease)
		}
	}
	gateway.held = held
	return held
}

func (gateway *TestGateway) isRenewing() bool {
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	return !gateway.noRenewal
}

func (gateway *TestGateway) dueAt(lease *Lease) time.Time {
	isRenewing := gateway.isRenewing()
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if isRenewing && lease.isRenewing && lease.renewAt.Before(lease.validUntil) {
		return lease.renewAt
	}
	return lease.validUntil
}
