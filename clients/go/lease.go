package fencegate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	leasesPath     = "/v1/leases"
	renewalsPerTTL = 3
	// A renewal that takes longer than this part of the ttl, and half a second, is repeated, at the next gateway if
	// there are several.
	attemptsPerTTL    = 4
	renewalAttemptMin = 500 * time.Millisecond
	renewalPauseMin   = 20 * time.Millisecond
	releaseTimeMin    = 50 * time.Millisecond
	releaseTime       = 5 * time.Second // for the release by WithLease
)

// Lease is the right to one or several resources for a limited time. A goroutine renews it each third of its ttl until
// it is released or lost, and another one watches it by a stream of a gateway, which tells of its end at once.
//
// Validity is counted from the sending of the request that was granted or renewed, by Go's monotonic clock, so that a
// pause of this process or of the network makes it shorter and never longer. Methods may be called by several
// goroutines.
type Lease struct {
	client    *Client
	id        string
	resources []string
	mode      Mode
	shared    []string
	token     uint64
	owner     string
	ttl       time.Duration
	seal      bool

	done       chan struct{} // closed when the lease is released or lost
	ended      chan struct{} // gets a value when a gateway says that the lease has ended
	released   chan struct{} // closed when releaseErr is set
	releaseErr error
	ctx        context.Context // of the goroutines that renew and watch it
	stop       context.CancelFunc

	mu           sync.Mutex
	err          error // why done is closed
	isReleasable bool  // whether the nodes may still have a lost lease, because the database alone has refused it
	isRenewing   bool
	// How many writes that release the lease have no result yet, and the loss that was found meanwhile, which may be the
	// effect of such a write.
	releasingWrites int
	pendingLoss     error
	validUntil      time.Time
	renewAt         time.Time
	renewalErr      error       // of the latest renewal
	over            *time.Timer // ends the lease with its validity
}

// grant is what a gateway says of a lease.
type grant struct {
	LeaseID      string   `json:"lease_id"`
	Resource     string   `json:"resource"`
	Resources    []string `json:"resources"`
	Mode         Mode     `json:"mode"`
	Shared       []string `json:"shared"`
	FencingToken uint64   `json:"fencing_token"`
	Owner        string   `json:"owner"`
	TTLMs        int64    `json:"ttl_ms"`
	ValidityMs   *int64   `json:"validity_ms"`
	ServedMs     *int64   `json:"served_ms"`
}

// readGrant returns the lease of an answer, and until when it is valid.
func readGrant(answered *answer) (*grant, time.Time, error) {
	var granted grant
	if err := answered.decode(&granted); err != nil {
		return nil, time.Time{}, err
	}
	if granted.FencingToken == 0 || granted.TTLMs <= 0 || granted.ValidityMs == nil || granted.ServedMs == nil {
		return nil, time.Time{}, answered.unexpected("it is no lease")
	}
	if granted.Resource != "" {
		granted.Resources = []string{granted.Resource}
	}
	if granted.Mode == "" {
		granted.Mode = Exclusive
	}
	valid := time.Duration(*granted.ServedMs+*granted.ValidityMs) * time.Millisecond
	return &granted, answered.sentAt.Add(valid), nil
}

// newLease begins to renew and watch a lease that was granted.
func newLease(client *Client, granted *grant, sentAt, validUntil time.Time, options LeaseOptions) *Lease {
	lease := &Lease{
		client:     client,
		id:         granted.LeaseID,
		resources:  granted.Resources,
		mode:       granted.Mode,
		shared:     granted.Shared,
		token:      granted.FencingToken,
		owner:      granted.Owner,
		ttl:        time.Duration(granted.TTLMs) * time.Millisecond,
		seal:       options.Seal,
		done:       make(chan struct{}),
		ended:      make(chan struct{}, 1),
		released:   make(chan struct{}),
		isRenewing: !options.NotRenewed,
	}
	lease.ctx, lease.stop = context.WithCancel(context.Background())
	lease.mu.Lock()
	lease.over = time.AfterFunc(never, func() { _ = lease.Check() })
	lease.mu.Unlock()
	lease.extend(sentAt, validUntil)
	if client.test != nil {
		client.test.add(lease)
		return lease
	}
	go lease.keep()
	go lease.watch()
	return lease
}

// FencingToken returns the fencing token: the number that each write under this lease carries, higher than those of all
// earlier leases on its resources.
func (lease *Lease) FencingToken() uint64 { return lease.token }

// Resources returns the names of the resources.
func (lease *Lease) Resources() []string { return append([]string(nil), lease.resources...) }

// Mode returns how the lease has its Resources.
func (lease *Lease) Mode() Mode { return lease.mode }

// Shared returns what the lease shares beside its exclusive Resources.
func (lease *Lease) Shared() []string { return append([]string(nil), lease.shared...) }

// Owner returns the owner; empty if the lease has none.
func (lease *Lease) Owner() string { return lease.owner }

// LeaseID returns the proof of the grant, a secret: who has it, and a credential of the same principal, can use the
// lease.
func (lease *Lease) LeaseID() string { return lease.id }

// Done returns a channel that is closed when the lease is lost or released.
func (lease *Lease) Done() <-chan struct{} { return lease.done }

// Check returns nil while the lease is held, ErrReleased after its release, and a LeaseLostError after its loss. It
// asks no gateway. The lease may end immediately afterwards: what must not happen twice is written with FencingToken.
func (lease *Lease) Check() error {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return lease.checkValidity()
}

// Remaining returns how long the lease is valid if it is not renewed; zero if it is over.
func (lease *Lease) Remaining() time.Duration {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.checkValidity() != nil {
		return 0
	}
	return lease.validUntil.Sub(lease.client.now())
}

// Renew extends the lease now, by its ttl from now on. Leases are renewed by themselves unless NotRenewed is set.
func (lease *Lease) Renew(ctx context.Context) error {
	if err := lease.Check(); err != nil {
		return err
	}
	err := lease.renew(ctx)
	lease.loseAfter(err)
	return err
}

// Release ends the lease, so that the next caller can have it, also one that was lost because its token was refused. A
// further call returns the outcome of the first one. It returns the LeaseLostError of a lease that was lost before;
// after another error the lease ends with its ttl.
func (lease *Lease) Release(ctx context.Context) error {
	lease.mu.Lock()
	lost := lease.checkValidity()
	if lost != nil && !lease.isReleasable {
		lease.mu.Unlock()
		if lost != ErrReleased {
			return lost
		}
		select {
		case <-lease.released:
			return lease.releaseErr
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	lease.isReleasable = false
	lease.end(ErrReleased)
	until := lease.validUntil
	lease.mu.Unlock()

	err := lease.release(ctx, until)
	if lost != nil {
		return lost
	}
	lease.releaseErr = err
	close(lease.released)
	return err
}

// release asks a gateway to release the hold. Without a seal that is tried only while the lease would last anyway.
func (lease *Lease) release(ctx context.Context, validUntil time.Time) error {
	call := request{method: http.MethodDelete, path: lease.path(), timeout: lease.client.requestTimeout}
	until := lease.client.now().Add(max(validUntil.Sub(lease.client.now()), releaseTimeMin))
	if lease.seal {
		call.path += "?seal=true"
		until = lease.client.repeatUntil(0)
	} else {
		call.end = until
	}
	var tries attempts
	answered, err := lease.client.call(ctx, call, until, &tries)
	if as[*LeaseLostError](err) {
		// An earlier attempt that was not answered has released the lease, and sealed before; or, where the validity is
		// over, the lease may have ended without it. After 503 a gateway goes on with a release; one that seals has not
		// begun then.
		isRepeat := tries.unanswered || tries.unavailable && !lease.seal
		if isRepeat && (!lease.seal || lease.client.now().Before(validUntil)) {
			return nil
		}
	}
	if err != nil || answered.status == http.StatusNoContent {
		return err
	}
	var left struct {
		HoldCount *int  `json:"hold_count"`
		Sealed    *bool `json:"sealed"`
	}
	if err := answered.decode(&left); err != nil {
		return err
	}
	if left.HoldCount == nil {
		return answered.unexpected("it has no hold_count")
	}
	if lease.seal && *left.HoldCount == 0 && left.Sealed != nil && !*left.Sealed {
		return errors.New("fencegate: the lease was released, and its token was not sealed")
	}
	return nil
}

func (lease *Lease) path() string { return leasesPath + "/" + url.PathEscape(lease.id) }

// checkValidity ends the lease if its validity is over, and returns why it has ended. The caller holds the mutex.
func (lease *Lease) checkValidity() error {
	if lease.err == nil && !lease.client.now().Before(lease.validUntil) {
		lease.end(&LeaseLostError{lease.renewalErr})
	}
	if lease.err == nil {
		return lease.pendingLoss
	}
	return lease.err
}

// end records once why the lease is over; a loss only later if a write that releases the lease has no result yet. The
// caller holds the mutex.
func (lease *Lease) end(err error) {
	if lease.err != nil {
		return
	}
	if lease.releasingWrites > 0 && err != ErrReleased {
		if lease.pendingLoss == nil {
			lease.pendingLoss = err
		}
		return
	}
	lease.err = err
	close(lease.done)
	lease.stop()
	lease.over.Stop()
}

// beginReleasingWrite begins a write that releases the lease.
func (lease *Lease) beginReleasingWrite() {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.releasingWrites++
}

// endReleasingWrite ends such a write. If it was applied the lease is released; otherwise a loss that was found
// meanwhile is reported now.
func (lease *Lease) endReleasingWrite(isApplied bool) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.releasingWrites--
	if isApplied && lease.err == nil {
		lease.end(ErrReleased)
		close(lease.released)
	} else if lease.releasingWrites == 0 && lease.pendingLoss != nil {
		lease.end(lease.pendingLoss)
	}
}

// loseAfter ends the lease if an error says that it is lost, or that the database refuses its token.
func (lease *Lease) loseAfter(err error) {
	var unknown *OutcomeUnknownError
	if errors.As(err, &unknown) {
		err = unknown.Last
	}
	var lost *LeaseLostError
	isStale := as[*StaleFencingTokenError](err)
	if isStale {
		lost = &LeaseLostError{err}
	} else if !errors.As(err, &lost) {
		return
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.err == nil {
		lease.isReleasable = isStale
		lease.end(lost)
	}
}

// extend sets the validity after a grant or a renewal, which never shortens it.
func (lease *Lease) extend(sentAt, until time.Time) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if until.After(lease.validUntil) {
		lease.validUntil = until
	}
	// A repeated request gets what is left of the validity, which may be much shorter than the ttl.
	lease.renewAt = sentAt.Add(min(lease.ttl, until.Sub(sentAt)) / renewalsPerTTL)
	lease.renewalErr = nil
	if lease.err == nil && lease.client.test == nil {
		lease.over.Reset(lease.validUntil.Sub(lease.client.now()))
	}
}

// renew asks for a renewal, as long as the lease is valid.
func (lease *Lease) renew(ctx context.Context) error {
	call := lease.requestOf(http.MethodPost, "/renew")
	call.body = map[string]any{"ttl_ms": lease.ttl.Milliseconds()}
	answered, err := lease.client.call(ctx, call, call.end, &attempts{})
	if err != nil {
		return err
	}
	granted, until, err := readGrant(answered)
	if err != nil {
		return err
	}
	if granted.FencingToken != lease.token {
		return answered.unexpected("it is another lease")
	}
	lease.extend(answered.sentAt, until)
	return nil
}

// requestOf returns a request about the lease that is of use while it is valid, with so short a time for an attempt
// that another gateway can be asked in time.
func (lease *Lease) requestOf(method, suffix string) request {
	timeout := min(lease.client.requestTimeout, max(lease.ttl/attemptsPerTTL, renewalAttemptMin))
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return request{method: method, path: lease.path() + suffix, timeout: timeout, end: lease.validUntil}
}

// keep renews the lease until it is over; at once if a gateway says that it has ended, because the answer is the proof.
func (lease *Lease) keep() {
	for {
		timer := time.NewTimer(lease.untilRenewal())
		select {
		case <-timer.C:
		case <-lease.ended:
		case <-lease.ctx.Done():
		}
		timer.Stop()
		if lease.ctx.Err() != nil {
			return
		}
		lease.confirm()
	}
}

// untilRenewal returns the time until the next renewal; if there is none, or only after the validity, the timer of the
// validity ends the lease.
func (lease *Lease) untilRenewal() time.Duration {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if !lease.isRenewing || lease.pendingLoss != nil || !lease.renewAt.Before(lease.validUntil) {
		return never
	}
	return lease.renewAt.Sub(lease.client.now())
}

// confirm renews the lease, or asks for its state if it is not to be renewed.
func (lease *Lease) confirm() {
	lease.mu.Lock()
	isRenewing := lease.isRenewing
	lease.mu.Unlock()
	if !isRenewing {
		call := lease.requestOf(http.MethodGet, "")
		_, err := lease.client.call(lease.ctx, call, call.end, &attempts{})
		lease.loseAfter(err)
		return
	}
	err := lease.renew(lease.ctx)
	lease.loseAfter(err)
	if err != nil && lease.ctx.Err() == nil {
		lease.scheduleAfter(err)
	}
}

// scheduleAfter decides about the next renewal after one that failed. A gateway's refusal without Retry-After ends the
// renewals. After any other failure half of the remaining validity is a pause, also if Retry-After is longer, because
// the lease would be lost then.
func (lease *Lease) scheduleAfter(err error) {
	var problem *Problem
	isRefusal := errors.As(err, &problem) && problem.Status < http.StatusInternalServerError && problem.RetryAfter < 0
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewalErr = err
	lease.isRenewing = lease.isRenewing && !isRefusal
	pause := lease.validUntil.Sub(lease.client.now()) / 2
	lease.renewAt = lease.client.now().Add(pause)
	if pause < renewalPauseMin {
		lease.renewAt = lease.validUntil
	}
}

// String has the resources and the token, and not the secret id.
func (lease *Lease) String() string {
	return fmt.Sprintf("lease on %q with token %d", lease.resources, lease.token)
}
