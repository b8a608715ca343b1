package fencegate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

const (
	// How long a request that was given up is tried to be cancelled; a third of it for one attempt, so that other
	// gateways can be asked.
	cancelTime = 3 * time.Second
	// The longest pause between two requests for a lease where the gateway lets no call wait.
	earlyAnswerPause = 500 * time.Millisecond
)

// Mode is how a lease has its resources.
type Mode string

const (
	// Exclusive: no other lease has the resource.
	Exclusive Mode = "exclusive"
	// Shared: any number of leases have the resource together, to read, while none has it exclusively.
	Shared Mode = "shared"
)

// LeaseOptions say how a lease is acquired and kept.
type LeaseOptions struct {
	// Also are further resources of the same lease: all of them or none. 64 with the first one, at most 4 KiB together.
	Also []string
	// AnyOf are resources of which the lease may have any one in place of the first one: the first that is free, which
	// lease.Resources says. Not together with Also. 64 with the first one.
	AnyOf []string
	// Mode says how the lease has these resources: Exclusive, which is the default, or Shared with others that read.
	Mode Mode
	// Shared are resources of the same lease that it shares, beside its exclusive ones.
	Shared []string
	// TTL is how long the lease lasts without a renewal, at least 100 ms. Zero: the gateway's default.
	TTL time.Duration
	// Wait is how long Acquire and WithLease wait for the resource; longer than one request may wait, the request is
	// repeated and keeps its place in the queue. Zero: until the context ends. TryAcquire does not wait.
	Wait time.Duration
	// Owner distinguishes the workers of a principal; the same owner that acquires the same resources again gets a
	// further hold under the same token. Empty: none, and the lease is exclusive.
	Owner string
	// FenceOnGrant refuses every older token from the grant on, and not only from the first write.
	FenceOnGrant bool
	// NotRenewed lets the lease end after its ttl, unless Renew is called.
	NotRenewed bool
	// Seal makes the release seal the token in PostgreSQL, so that nothing can be written under it afterwards.
	Seal bool
}

// Acquire acquires a lease on a resource, and waits for it until options.Wait is over or the context ends. The caller
// releases the lease; the end of the context does not.
//
// If the context ends, the request is cancelled, for 3 s at the longest before Acquire returns, so that no lease is
// left. Other errors: ErrResourceLocked; LeaseLostError if each grant arrived only after the end of its validity;
// UnavailableError; Problem.
func (client *Client) Acquire(ctx context.Context, resource string, options LeaseOptions) (*Lease, error) {
	wait := options.Wait
	if wait == 0 {
		wait = never
	}
	return client.acquire(ctx, resource, options, wait)
}

// TryAcquire is as Acquire, and does not wait: errors.Is(err, ErrResourceLocked) is true if the resource is not free.
func (client *Client) TryAcquire(ctx context.Context, resource string, options LeaseOptions) (*Lease, error) {
	return client.acquire(ctx, resource, options, 0)
}

// WithLease acquires a lease as Acquire does, calls the function, and releases the lease, also if ctx has ended, for
// which it takes at most 5 s.
//
// The context of the function ends when the lease is lost, or ctx ends; lease.Check says which. WithLease returns the
// error of the function; a LeaseLostError if the lease was lost and the function returned nil or the error of its
// context. A failed release is only logged, unless it had to seal the token; the lease ends with its ttl then.
func (client *Client) WithLease(ctx context.Context, resource string, options LeaseOptions,
	function func(ctx context.Context, lease *Lease) error) error {
	lease, err := client.Acquire(ctx, resource, options)
	if err != nil {
		return err
	}
	return lease.use(ctx, options.Seal, function)
}

// use calls a function of WithLease, and then releases the lease.
func (lease *Lease) use(ctx context.Context, seal bool,
	function func(ctx context.Context, lease *Lease) error) (err error) {
	inner, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-lease.done:
			cancel()
		case <-inner.Done():
		}
	}()
	defer func() {
		cancel()
		releasing, stop := context.WithTimeout(detached{ctx}, releaseTime)
		defer stop()
		released := lease.Release(releasing)
		isLost := as[*LeaseLostError](released)
		switch {
		case released == nil:
		case isLost && (err == nil || ctx.Err() == nil && errors.Is(err, context.Canceled)):
			err = released
		case !isLost && seal && err == nil:
			err = released
		default:
			lease.client.logf("fencegate: release of the %v: %v", lease, released)
		}
	}()
	return function(inner, lease)
}

// acquire waits at most for so long, and keeps one Idempotency-Key, so that a repeat neither gets a second hold nor
// loses its place in the queue.
func (client *Client) acquire(ctx context.Context, resource string, options LeaseOptions,
	wait time.Duration) (*Lease, error) {
	if err := validateTimes(options.TTL, options.Wait); err != nil {
		return nil, err
	}
	if len(options.Also) > 0 && len(options.AnyOf) > 0 {
		return nil, errors.New("fencegate: Also and AnyOf cannot be used together")
	}
	if options.Mode == Shared && options.Seal {
		return nil, errors.New("fencegate: Seal is not possible with Mode Shared, which has nothing to seal")
	}
	body := leaseBody(append([]string{resource}, options.Also...), options.TTL, options.Owner)
	if options.Mode != "" && options.Mode != Exclusive {
		body["mode"] = options.Mode
	}
	if len(options.Shared) > 0 {
		body["shared"] = options.Shared
	}
	if len(options.AnyOf) > 0 {
		delete(body, "resource")
		body["any_of"] = append([]string{resource}, options.AnyOf...)
	}
	if options.FenceOnGrant {
		body["fence_on_grant"] = true
	}
	key := newKey()
	giveUpAt := client.now().Add(wait)
	var tries attempts
	for attempt := 0; ; attempt++ {
		began := client.now()
		waitMs := min(client.maxWaitMs.Load(), milliseconds(max(giveUpAt.Sub(began), 0)))
		body["wait_ms"] = waitMs
		waiting := time.Duration(waitMs) * time.Millisecond
		lease, err := client.acquireOnce(ctx, body, key, waiting, options, &tries)
		var problem *Problem
		errors.As(err, &problem)
		pause := time.Duration(0)
		switch now := client.now(); {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			if tries.sent {
				client.cancel(ctx, body, key)
			}
			return nil, err
		case as[*LeaseLostError](err):
			// The grant was too late; with the key a repeat gets the same lease, or a new one.
			if now.After(giveUpAt.Add(max(client.retryFor, 0))) {
				return nil, err
			}
			pause = backoff(attempt)
		case errors.Is(err, ErrResourceLocked):
			if !now.Before(giveUpAt) {
				return nil, err
			}
			maxWaitMs := problem.number("max_wait_ms")
			client.maxWaitMs.Store(maxWaitMs)
			if maxWaitMs == 0 || now.Sub(began) < waiting/2 {
				pause = min(randomBelow(earlyAnswerPause), giveUpAt.Sub(now))
			}
		case waitMs > 0 && problem != nil && hasFault(problem, "/wait_ms"):
			client.maxWaitMs.Store(0) // the limit was lowered; the next answer has it
		default:
			return nil, err
		}
		_ = client.sleep(ctx, pause) // if the context ends, the next attempt fails and is cancelled
	}
}

// acquireOnce makes one request, which may wait, and repeats it while its failures are temporary.
func (client *Client) acquireOnce(ctx context.Context, body map[string]any, key string, waiting time.Duration,
	options LeaseOptions, tries *attempts) (*Lease, error) {
	timeout := client.requestTimeout + waiting
	call := request{method: http.MethodPost, path: leasesPath, body: body, key: key, timeout: timeout}
	answered, err := client.call(ctx, call, client.repeatUntil(waiting), tries)
	if err != nil {
		return nil, err
	}
	granted, validUntil, err := readGrant(answered)
	if err != nil {
		return nil, err
	}
	isOther := len(granted.Resources) != 1+len(options.Also) || len(granted.Shared) != len(options.Shared) ||
		(granted.Mode == Shared) != (options.Mode == Shared)
	if granted.LeaseID == "" || isOther {
		return nil, answered.unexpected("it is another lease")
	}
	if !client.now().Before(validUntil) {
		return nil, &LeaseLostError{errors.New("the grant arrived after the end of its validity")}
	}
	return newLease(client, granted, answered.sentAt, validUntil, options), nil
}

// Adopt goes on with a lease that another process has acquired and given the id of: it renews the lease at once, and
// until it is released. The other process no longer uses its lease, and does not release it. Of the options TTL,
// NotRenewed and Seal apply. Errors: LeaseLostError if the lease is over; Problem; UnavailableError.
func (client *Client) Adopt(ctx context.Context, leaseID string, options LeaseOptions) (*Lease, error) {
	if err := validateTimes(options.TTL, options.Wait); err != nil {
		return nil, err
	}
	body := map[string]any{}
	if options.TTL > 0 {
		body["ttl_ms"] = milliseconds(options.TTL)
	}
	path := leasesPath + "/" + url.PathEscape(leaseID) + "/renew"
	call := request{method: http.MethodPost, path: path, body: body, timeout: client.requestTimeout}
	answered, err := client.call(ctx, call, client.repeatUntil(0), &attempts{})
	if err != nil {
		return nil, err
	}
	granted, validUntil, err := readGrant(answered)
	if err != nil {
		return nil, err
	}
	if granted.LeaseID == "" {
		return nil, answered.unexpected("it is no lease")
	}
	if !client.now().Before(validUntil) {
		return nil, &LeaseLostError{errors.New("the answer arrived after the end of its validity")}
	}
	return newLease(client, granted, answered.sentAt, validUntil, options), nil
}

// cancel ends the wait of a request that was given up, and releases what it was granted. A failure is only logged.
func (client *Client) cancel(ctx context.Context, body map[string]any, key string) {
	path, end := leasesPath+"/cancel", client.now().Add(cancelTime)
	call := request{method: http.MethodPost, path: path, body: body, key: key, timeout: cancelTime / 3, end: end}
	if _, err := client.call(detached{ctx}, call, end, &attempts{}); err != nil {
		client.logf("fencegate: a lease was given up and not cancelled; if it was granted, it ends with its ttl: %v", err)
	}
}

// leaseBody returns the members that a request for a lease and a one-shot write have in common.
func leaseBody(resources []string, ttl time.Duration, owner string) map[string]any {
	body := map[string]any{}
	if len(resources) == 1 {
		body["resource"] = resources[0]
	} else {
		body["resources"] = resources
	}
	if ttl > 0 {
		body["ttl_ms"] = milliseconds(ttl)
	}
	if owner != "" {
		body["owner"] = owner
	}
	return body
}

func validateTimes(ttl, wait time.Duration) error {
	if ttl < 0 || wait < 0 {
		return errors.New("fencegate: TTL and Wait cannot be negative")
	}
	return nil
}

func hasFault(problem *Problem, pointer string) bool {
	for _, fault := range problem.Faults {
		if fault.Pointer == pointer {
			return true
		}
	}
	return false
}

// detached is a context that has the values of another one and does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
