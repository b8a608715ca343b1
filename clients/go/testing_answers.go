package fencegate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const testTTL = 30 * time.Second

type testGrant struct {
	id      string
	written []string // what the lease has exclusively
	read    []string // what it shares
	token   uint64
	owner   string
	ttl     time.Duration
	endsAt  time.Time
}

type testOutcome struct {
	operations []map[string]any
	document   map[string]any
}

type testProblem struct {
	slug    string
	status  int
	members map[string]any
}

type testBody struct {
	Resource   string           `json:"resource"`
	Fence      bool             `json:"fence_on_grant"`
	Resources  []string         `json:"resources"`
	Mode       Mode             `json:"mode"`
	Shared     []string         `json:"shared"`
	AnyOf      []string         `json:"any_of"`
	Owner      string           `json:"owner"`
	TTLMs      int64            `json:"ttl_ms"`
	LeaseID    string           `json:"lease_id"`
	Lease      *testBody        `json:"lease"`
	Operations []map[string]any `json:"operations"`
	Then       string           `json:"then"`
}

// RoundTrip answers a request of a client.
func (gateway *TestGateway) RoundTrip(request *http.Request) (*http.Response, error) {
	var body testBody
	if request.Body != nil {
		decoder := json.NewDecoder(request.Body)
		decoder.UseNumber()
		_ = decoder.Decode(&body)
		_ = request.Body.Close()
	}
	header := http.Header{"Content-Type": {"application/json"}}
	gateway.mu.Lock()
	status, document := gateway.answer(request, &body, header)
	gateway.mu.Unlock()
	if refusal, isRefused := document.(testProblem); isRefused {
		header.Set("Content-Type", "application/problem+json")
		members := map[string]any{"type": "/problems/" + refusal.slug, "title": refusal.slug, "status": refusal.status,
			"detail": refusal.slug + ", by the test's gateway.", "request_id": "test"}
		for name, value := range refusal.members {
			members[name] = value
		}
		document = members
	}
	var text []byte
	if document != nil {
		text, _ = json.Marshal(document)
	}
	content := io.NopCloser(bytes.NewReader(text))
	return &http.Response{StatusCode: status, Header: header, Body: content, Request: request}, nil
}

func refuse(slug string, status int, members map[string]any) (int, any) {
	return status, testProblem{slug, status, members}
}

// answer returns the status and the document of an answer. The caller holds the mutex, as that of all that follow.
func (gateway *TestGateway) answer(request *http.Request, body *testBody, header http.Header) (int, any) {
	path := request.URL.Path
	switch {
	case path == leasesPath:
		grant, refusal := gateway.acquire(body)
		if refusal != nil {
			return refusal.status, *refusal
		}
		return http.StatusCreated, grant.document()
	case path == "/v1/writes":
		return gateway.write(body, request.Header.Get("Idempotency-Key"), header)
	case path == "/v1/history":
		return http.StatusOK, map[string]any{"items": gateway.history(request.URL.Query()), "next_cursor": nil}
	case strings.HasPrefix(path, leasesPath+"/"):
		grant := gateway.live(strings.Split(path, "/")[3])
		if grant == nil {
			return refuse(slugLeaseLost, http.StatusGone, nil)
		}
		if request.Method == http.MethodDelete {
			gateway.end(grant)
			gateway.record("lease_released", grant, nil)
			return http.StatusNoContent, nil
		}
		if request.Method == http.MethodPost {
			grant.endsAt = gateway.time.Add(grant.ttl)
		}
		return http.StatusOK, grant.document()
	}
	if fencedBy := request.Header.Get("Fencing-Lease"); fencedBy != "" {
		if refusal := gateway.raiseFences(gateway.grants[fencedBy]); refusal != nil {
			return refusal.status, *refusal
		}
	}
	if found, isThere := gateway.Reads[path]; isThere {
		return http.StatusOK, found
	}
	return refuse("not-found", http.StatusNotFound, nil)
}

func (grant *testGrant) document() map[string]any {
	ms := grant.ttl.Milliseconds()
	document := map[string]any{"lease_id": grant.id, "resources": grant.written, "fencing_token": grant.token,
		"owner": grant.owner, "ttl_ms": ms, "validity_ms": ms, "served_ms": 0}
	if len(grant.written) == 0 {
		document["resources"], document["mode"] = grant.read, Shared
	} else if len(grant.read) > 0 {
		document["shared"] = grant.read
	}
	return document
}

func (grant *testGrant) resources() []string {
	return append(append([]string(nil), grant.written...), grant.read...)
}

func (grant *testGrant) excludes(other *testGrant) bool {
	return overlap(grant.written, other.resources()) || overlap(grant.read, other.written)
}

func (gateway *TestGateway) acquire(body *testBody) (*testGrant, *testProblem) {
	resources, ttl := body.Resources, time.Duration(body.TTLMs)*time.Millisecond
	if body.Resource != "" {
		resources = []string{body.Resource}
	}
	if len(body.AnyOf) > 0 {
		return gateway.acquireAnyOf(body)
	}
	if ttl == 0 {
		ttl = testTTL
	}
	id := fmt.Sprintf("lease-%d", gateway.holds+1)
	grant := &testGrant{id, resources, body.Shared, gateway.token + 1, body.Owner, ttl, gateway.time.Add(ttl)}
	if body.Mode == Shared {
		grant.written, grant.read = nil, resources
	}
	for id, held := range gateway.grants {
		if gateway.live(id) == nil {
			continue
		}
		isSame := reflect.DeepEqual([][]string{grant.written, grant.read}, [][]string{held.written, held.read})
		if isSame && body.Owner != "" && body.Owner == held.owner {
			grant.token = held.token // a further hold
		} else if grant.excludes(held) {
			remaining := held.endsAt.Sub(gateway.time).Milliseconds()
			return nil, &testProblem{slugResourceLocked, http.StatusLocked,
				map[string]any{"remaining_ms": remaining, "max_wait_ms": 0}}
		}
	}
	if grant.token > gateway.token {
		gateway.token = grant.token
	}
	gateway.holds++
	gateway.grants[grant.id] = grant
	gateway.record("lease_granted", grant, nil)
	if body.Fence {
		_ = gateway.raiseFences(grant)
		gateway.record("fence_raised", grant, nil)
	}
	return grant, nil
}

// findRefusal returns why nothing may be done under a lease: its token is stale, or it is over, or was never granted.
func (gateway *TestGateway) findRefusal(grant *testGrant) *testProblem {
	if grant != nil {
		for _, name := range grant.resources() {
			if gateway.fences[name] > grant.token {
				return &testProblem{slugStaleToken, http.StatusPreconditionFailed, nil}
			}
		}
		for _, name := range grant.written {
			if gateway.reads[name] > grant.token {
				return &testProblem{slugStaleToken, http.StatusPreconditionFailed, nil}
			}
		}
		if gateway.live(grant.id) != nil {
			return nil
		}
	}
	return &testProblem{slugLeaseLost, http.StatusGone, nil}
}

// raiseFences raises the fences of what a lease may write, and the read fences of what it shares.
func (gateway *TestGateway) raiseFences(grant *testGrant) *testProblem {
	if refusal := gateway.findRefusal(grant); refusal != nil {
		return refusal
	}
	for _, name := range grant.written {
		gateway.fences[name] = grant.token
	}
	for _, name := range grant.read {
		if gateway.reads[name] < grant.token {
			gateway.reads[name] = grant.token
		}
	}
	return nil
}

// acquireAnyOf grants the first of the resources that is free; it is never a further hold.
func (gateway *TestGateway) acquireAnyOf(body *testBody) (*testGrant, *testProblem) {
	one := *body
	one.Resource, one.AnyOf = body.AnyOf[0], nil
	for _, name := range body.AnyOf {
		isHeld := false
		for id, held := range gateway.grants {
			isHeld = isHeld || gateway.live(id) != nil && overlap([]string{name}, held.resources())
		}
		if !isHeld {
			one.Resource = name
			return gateway.acquire(&one)
		}
	}
	one.Owner = ""
	return gateway.acquire(&one)
}

func overlap(some, others []string) bool {
	for _, one := range some {
		for _, other := range others {
			if one == other {
				return true
			}
		}
	}
	return false
}

func (gateway *TestGateway) live(id string) *testGrant {
	grant := gateway.grants[id]
	if grant != nil && !grant.endsAt.After(gateway.time) {
		return nil
	}
	return grant
}

// end ends a lease, whose token the fences still know; nil: there is none.
func (gateway *TestGateway) end(grant *testGrant) {
	if grant != nil {
		grant.endsAt = gateway.time
	}
}

func (gateway *TestGateway) write(body *testBody, key string, header http.Header) (int, any) {
	if kept, isKept := gateway.kept[key]; isKept {
		if !reflect.DeepEqual(kept.operations, body.Operations) {
			return refuse("idempotency-mismatch", http.StatusUnprocessableEntity, nil)
		}
		header.Set("Idempotency-Replayed", "true")
		return http.StatusOK, kept.document
	}
	grant := gateway.grants[body.LeaseID]
	if body.Lease != nil {
		acquired, refusal := gateway.acquire(body.Lease)
		if refusal != nil {
			return refusal.status, *refusal
		}
		grant = acquired
		defer gateway.end(grant)
	}
	if grant != nil && len(grant.written) == 0 {
		return refuse(slugSharedLease, http.StatusForbidden, nil)
	}
	if refusal := gateway.findRefusal(grant); refusal != nil {
		return refusal.status, *refusal
	}
	if len(gateway.refusals) > 0 {
		refusal := gateway.refusals[0]
		gateway.refusals = gateway.refusals[1:]
		return refusal.status, refusal
	}
	document := gateway.apply(grant, body.Operations, key)
	if body.Then != "" {
		gateway.end(grant)
		document["released"] = true
	}
	return http.StatusOK, document
}

func (gateway *TestGateway) apply(grant *testGrant, operations []map[string]any, key string) map[string]any {
	gateway.writes = append(gateway.writes, Written{grant.written, grant.token, operations, key})
	_ = gateway.raiseFences(grant)
	var fences []Fence
	for _, resource := range grant.written {
		fences = append(fences, Fence{resource, grant.token, grant.token})
	}
	results := []any{}
	for _, operation := range operations {
		results = append(results, gateway.resultOf(operation))
	}
	id := fmt.Sprintf("write-%d", len(gateway.writes))
	gateway.record("write_applied", grant, id)
	document := map[string]any{"applied": true, "write_id": id, "fences": fences, "results": results}
	if key != "" {
		gateway.kept[key] = testOutcome{operations, document}
	}
	return document
}

func (gateway *TestGateway) resultOf(operation map[string]any) any {
	if gateway.Results != nil {
		return gateway.Results(operation)
	}
	if expected, isThere := operation["expect_rows"]; isThere {
		return map[string]any{"rows_affected": expected}
	}
	return Result{RowsAffected: 1}
}

func (gateway *TestGateway) record(event string, grant *testGrant, writeID any) {
	resources := grant.resources()
	if event == "write_applied" {
		resources = grant.written
	}
	for _, resource := range resources {
		gateway.events = append(gateway.events, map[string]any{"id": len(gateway.events) + 1,
			"at": gateway.time, "event": event, "resource": resource, "fencing_token": grant.token,
			"owner": grant.owner, "write_id": writeID})
	}
}

func (gateway *TestGateway) history(query url.Values) []map[string]any {
	items := []map[string]any{}
	for _, event := range gateway.events {
		matches := true
		for _, name := range []string{"resource", "event", "owner", "write_id"} {
			matches = matches && (!query.Has(name) || event[name] == query.Get(name))
		}
		token := event["fencing_token"].(uint64)
		least, _ := strconv.ParseUint(query.Get("token_min"), 10, 64)
		most, err := strconv.ParseUint(query.Get("token_max"), 10, 64)
		matches = matches && token >= least && (err != nil || token <= most)
		if matches && query.Get("order") == "asc" {
			items = append(items, event)
		} else if matches {
			items = append([]map[string]any{event}, items...)
		}
	}
	return items
}
