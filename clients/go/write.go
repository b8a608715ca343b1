package fencegate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"
)

// WriteOptions are those of a write under a lease.
type WriteOptions struct {
	// IdempotencyKey is 1 to 64 visible ASCII characters, such as the number of an order, so that a repeat by another
	// process has no second effect. Empty: a random one.
	IdempotencyKey string
	// ReturnRows asks for the rows that the operations changed.
	ReturnRows bool
	// RequireLive asks a majority of the nodes first whether the lease is live.
	RequireLive bool
	// ThenRelease seals the token in the same transaction and then releases the lease. If other holds of the same owner
	// remain, only this hold is released, and nothing is sealed. Until the result is known no loss is reported.
	ThenRelease bool
}

// OneShotOptions are those of a one-shot write.
type OneShotOptions struct {
	// IdempotencyKey and ReturnRows are as in WriteOptions.
	IdempotencyKey string
	ReturnRows     bool
	// Wait is how long to wait for the resources, at most the gateway's lease.max_wait_ms. Zero: not at all.
	Wait time.Duration
	// TTL and Owner are as in LeaseOptions. If the outcome is unknown, the lease locks the resources until its ttl is
	// over: choose one that is shorter than Options.RetryFor.
	TTL   time.Duration
	Owner string
}

// WriteResult is a write that was applied.
type WriteResult struct {
	// WriteID is the id by which the history has the write.
	WriteID string
	// FencingToken is the token of a one-shot write's own lease; zero for a write under a lease.
	FencingToken uint64
	// Fences are those that the write has raised or confirmed.
	Fences []Fence
	// Results has one element for each operation; nil if the gateway does not have them any more.
	Results []Result
	// Replayed says that an earlier call with the same key was applied, and that this is its outcome.
	Replayed bool
	// RowsLeftOut says that this outcome was kept without its rows and values, because they were too large.
	RowsLeftOut bool
	// Released says that the write has released its lease.
	Released bool
	// Unsealed says that the token of the lease that the write released is not sealed: other holds remain, or the seal
	// had to follow the release and may have failed.
	Unsealed bool
}

// Fence is the fence of a resource after a write under FencingToken.
type Fence struct {
	Resource         string `json:"resource"`
	FencingToken     uint64 `json:"fencing_token"`
	LastFencingToken uint64 `json:"last_fencing_token"`
}

// Result is what one operation led to: the number of rows and, if the write asked for them, the rows themselves; or the
// value of a function. Numbers in them are json.Number.
type Result struct {
	RowsAffected int64            `json:"rows_affected"`
	Rows         []map[string]any `json:"rows"`
	Value        any              `json:"value"`
}

var idempotencyKey = regexp.MustCompile(`^[!-~]{1,64}$`)

// Write makes a guarded write of 1 to 64 operations under a lease, in one transaction: all or nothing, and once.
//
// Errors: StaleFencingTokenError and LeaseLostError, after which the lease is lost; OutcomeUnknownError, also if the
// context ends after the write was sent; UnavailableError; Problem. Only after OutcomeUnknownError something may have
// been changed.
func (lease *Lease) Write(ctx context.Context, operations ...Operation) (*WriteResult, error) {
	return lease.WriteWith(ctx, WriteOptions{}, operations...)
}

// WriteWith is Write with options.
func (lease *Lease) WriteWith(ctx context.Context, options WriteOptions,
	operations ...Operation) (*WriteResult, error) {
	if err := lease.Check(); err != nil {
		return nil, err
	}
	body := map[string]any{"lease_id": lease.id}
	if options.RequireLive {
		body["require_live"] = true
	}
	if options.ThenRelease {
		body["then"] = "release"
		lease.beginReleasingWrite()
	}
	result, err := lease.client.write(ctx, body, options.IdempotencyKey, options.ReturnRows, 0, operations)
	if options.ThenRelease {
		lease.endReleasingWrite(err == nil)
	}
	lease.loseAfter(err)
	return result, err
}

// OneShotWrite makes a one-shot write: one call acquires a lease on the resources, writes in one transaction, seals the
// token and releases the lease. Errors: ErrResourceLocked, and those of Write.
func (client *Client) OneShotWrite(ctx context.Context, resources []string, options OneShotOptions,
	operations ...Operation) (*WriteResult, error) {
	if err := validateTimes(options.TTL, options.Wait); err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return nil, errors.New("fencegate: a one-shot write needs a resource")
	}
	lease := leaseBody(resources, options.TTL, options.Owner)
	lease["wait_ms"] = milliseconds(options.Wait)
	body := map[string]any{"lease": lease}
	return client.write(ctx, body, options.IdempotencyKey, options.ReturnRows, options.Wait, operations)
}

// write repeats a write with its key until its outcome is known. One whose outcome the gateway does not know is looked
// up in the history before it is repeated.
func (client *Client) write(ctx context.Context, body map[string]any, key string, rows bool, wait time.Duration,
	operations []Operation) (*WriteResult, error) {
	if len(operations) == 0 {
		return nil, errors.New("fencegate: a write needs an operation")
	}
	for _, operation := range operations {
		if operation.err != nil {
			return nil, operation.err
		}
	}
	if key == "" {
		key = newKey()
	} else if !idempotencyKey.MatchString(key) {
		return nil, errors.New("fencegate: IdempotencyKey has to be 1 to 64 visible ASCII characters")
	}
	body["operations"] = operations
	if rows {
		body["return"] = "rows"
	}
	timeout := client.requestTimeout + wait
	call := request{method: http.MethodPost, path: "/v1/writes", body: body, key: key, timeout: timeout}
	until := client.repeatUntil(wait)
	var tries attempts
	for attempt := 0; ; attempt++ {
		answered, err := client.call(ctx, call, until, &tries)
		if err == nil {
			var result *WriteResult
			if result, err = readResult(answered); err == nil {
				return result, nil
			}
			tries.unanswered = true
		}
		if !tries.unanswered || isConclusive(err) {
			return nil, err
		}
		unknown := &OutcomeUnknownError{tries.writeID, key, err}
		var problem *Problem
		isUnknown := errors.As(err, &problem) && problem.outcomeUnknown() && tries.writeID != ""
		if isUnknown {
			isApplied, failed := client.wasApplied(ctx, tries.writeID, until)
			if failed != nil {
				unknown.Last = failed
				return nil, unknown
			}
			if isApplied {
				return client.outcome(ctx, call, tries.writeID), nil
			}
		}
		// A locked resource may be that of the attempt whose outcome is unknown, which ends with its ttl.
		pause := backoff(attempt)
		if !isUnknown && !errors.Is(err, ErrResourceLocked) || !client.now().Add(pause).Before(until) {
			return nil, unknown
		}
		if err := client.sleep(ctx, pause); err != nil {
			unknown.Last = err
			return nil, unknown
		}
	}
}

// WasApplied returns whether the history has a write as applied. False is final only once PostgreSQL has ended the
// write's transaction, which takes seconds after an outage. It needs the scope history.
func (client *Client) WasApplied(ctx context.Context, writeID string) (bool, error) {
	return client.isInHistory(ctx, writeID, client.repeatUntil(0))
}

func (client *Client) isInHistory(ctx context.Context, writeID string, until time.Time) (bool, error) {
	query := url.Values{"write_id": {writeID}, "event": {"write_applied"}, "limit": {"1"}}
	call := request{method: http.MethodGet, path: "/v1/history?" + query.Encode(), timeout: client.requestTimeout}
	page, err := client.historyPage(ctx, call, until)
	return err == nil && len(page.Items) > 0, err
}

// wasApplied finds out about a write whose outcome is unknown. A look-up that is refused says nothing about the write:
// 403 without the scope history, 421 of a proxy that knows the write's cell by its resource and not that of the
// look-up. Then the write is repeated, which is safe because of its key.
func (client *Client) wasApplied(ctx context.Context, writeID string, until time.Time) (bool, error) {
	isApplied, err := client.isInHistory(ctx, writeID, until)
	if slug := slugOf(err); slug == slugForbidden || slug == slugMisdirected {
		return false, nil
	}
	return isApplied, err
}

// outcome returns the kept outcome of a write that was applied, without its results if they cannot be read again.
func (client *Client) outcome(ctx context.Context, call request, writeID string) *WriteResult {
	answered, err := client.call(ctx, call, client.now().Add(client.requestTimeout), &attempts{})
	if err == nil {
		if result, err := readResult(answered); err == nil {
			return result
		}
	}
	return &WriteResult{WriteID: writeID, Replayed: true}
}

// isConclusive returns whether a gateway gives this answer to a write that was tried before only if no attempt took
// effect: it comes after the search for a kept outcome.
func isConclusive(err error) bool {
	switch slugOf(err) {
	case slugConstraintViolation, slugExpectationFailed, slugNotCovered, slugSharedLease, slugStaleToken,
		slugUnprocessable:
		return true
	}
	return false
}

// readResult returns the outcome in an answer. A proxy may answer any request with success.
func readResult(answered *answer) (*WriteResult, error) {
	var document struct {
		WriteID      string   `json:"write_id"`
		FencingToken uint64   `json:"fencing_token"`
		Fences       []Fence  `json:"fences"`
		Results      []Result `json:"results"`
		RowsLeftOut  bool     `json:"rows_left_out"`
		Released     bool     `json:"released"`
		Sealed       *bool    `json:"sealed"`
	}
	if err := answered.decode(&document); err != nil {
		return nil, err
	}
	if document.WriteID == "" {
		return nil, answered.unexpected("it has no write_id")
	}
	return &WriteResult{
		WriteID:      document.WriteID,
		FencingToken: document.FencingToken,
		Fences:       document.Fences,
		Results:      document.Results,
		Replayed:     answered.replayed,
		RowsLeftOut:  document.RowsLeftOut,
		Released:     document.Released,
		Unsealed:     document.Sealed != nil && !*document.Sealed,
	}, nil
}
