package fencegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrResourceLocked is what errors.Is finds in the error of a call whose resource is held by another lease for all
// of the time to wait.
var ErrResourceLocked = errors.New("fencegate: another lease holds the resource")

// ErrSharedLease is what errors.Is finds in the error of a write under a lease that only shares its resources, and of
// Enter with one: it may read.
var ErrSharedLease = errors.New("fencegate: the lease shares its resources, so that it may not write")

// ErrReleased is the error of a lease that was released.
var ErrReleased = errors.New("fencegate: the lease was released")

// Slugs of the problems that this package distinguishes; the HTTP contract has all.
const (
	slugConstraintViolation = "constraint-violation"
	slugExpectationFailed   = "expectation-failed"
	slugFencingRequired     = "fencing-required"
	slugForbidden           = "forbidden"
	slugInternalError       = "internal-error"
	slugLeaseLost           = "lease-lost"
	slugMisdirected         = "misdirected-request"
	slugNoQuorum            = "no-quorum"
	slugNotAuthentic        = "lease-not-authentic"
	slugNotCovered          = "resource-not-covered"
	slugOverloaded          = "overloaded"
	slugResourceLocked      = "resource-locked"
	slugSharedLease         = "shared-lease"
	slugShuttingDown        = "shutting-down"
	slugStaleToken          = "stale-fencing-token"
	slugStorageUnavailable  = "storage-unavailable"
	slugUnprocessable       = "unprocessable"
)

// Problem is what a gateway answered in place of a success (RFC 9457). errors.As finds it in the errors of all calls
// that a gateway has refused.
type Problem struct {
	// Slug is the cause, the last part of the problem's type, such as "resource-locked".
	Slug      string
	Status    int
	Title     string
	Detail    string
	RequestID string
	// Faults are those of an invalid request.
	Faults []Fault
	// RetryAfter is how long to wait before the call is repeated; negative: a repeat does not help.
	RetryAfter time.Duration
	// Members are all members of the document, also those that depend on the slug, such as remaining_ms; numbers are
	// json.Number.
	Members map[string]any
}

// Fault is one fault of an invalid request: a JSON pointer into the body, or the name of a header or parameter, and
// what is wrong with it.
type Fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Error returns the status, the slug and the detail.
func (problem *Problem) Error() string {
	return fmt.Sprintf("fencegate: %d %s: %s", problem.Status, problem.Slug, problem.Detail)
}

// Is makes errors.Is true for ErrResourceLocked and ErrSharedLease where the slug is theirs.
func (problem *Problem) Is(target error) bool {
	return target == ErrResourceLocked && problem.Slug == slugResourceLocked ||
		target == ErrSharedLease && problem.Slug == slugSharedLease
}

// number returns an integer among the members; zero if there is no such one.
func (problem *Problem) number(name string) int64 {
	number, _ := problem.Members[name].(json.Number)
	value, _ := number.Int64()
	return value
}

func (problem *Problem) outcomeUnknown() bool {
	return problem.Members["outcome_unknown"] == true
}

func (problem *Problem) writeID() string {
	id, _ := problem.Members["write_id"].(string)
	return id
}

// LeaseLostError says that the lease is over: it expired, was revoked, or was refused by the database. Others may hold
// it now. Nothing was changed by a write that ends with it.
type LeaseLostError struct {
	// Err is why; nil: its validity is over.
	Err error
}

// Error returns why the lease is lost.
func (lost *LeaseLostError) Error() string {
	if lost.Err == nil {
		return "fencegate: the lease is lost: its validity is over"
	}
	return "fencegate: the lease is lost: " + lost.Err.Error()
}

// Unwrap returns why.
func (lost *LeaseLostError) Unwrap() error { return lost.Err }

// StaleFencingTokenError says that the database has seen a higher token: a newer holder has written. Nothing was
// changed.
type StaleFencingTokenError struct {
	// Err is the gateway's Problem, or the error of the caller's own connection.
	Err error
}

// Error returns the gateway's or the database's reason.
func (stale *StaleFencingTokenError) Error() string {
	return "fencegate: the fencing token is stale: " + stale.Err.Error()
}

// Unwrap returns the gateway's or the database's reason.
func (stale *StaleFencingTokenError) Unwrap() error { return stale.Err }

// UnavailableError says that no gateway, or not enough behind it, could be reached in time, or that something else than
// a gateway answered. A write that ends with it has changed nothing.
type UnavailableError struct {
	// Err is the latest failure.
	Err error
}

// Error returns the latest failure.
func (unavailable *UnavailableError) Error() string {
	return "fencegate: unavailable: " + unavailable.Err.Error()
}

// Unwrap returns the latest failure.
func (unavailable *UnavailableError) Unwrap() error { return unavailable.Err }

// OutcomeUnknownError says that a write may have taken effect, and that this could not be found out in time. The same
// write with IdempotencyKey can be repeated until it is answered, also under a newer lease and by another process: it
// takes effect once. Client.WasApplied asks the history.
type OutcomeUnknownError struct {
	// WriteID is the gateway's name of the write, for WasApplied; empty if no answer had it.
	WriteID string
	// IdempotencyKey is the key that all attempts had.
	IdempotencyKey string
	// Last is the latest failure. It says nothing about the write, so that errors.As does not find it; errors.Is finds
	// the error of a context that ended.
	Last error
}

// Error has the key and the latest failure.
func (unknown *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("fencegate: it is not known whether the write with the Idempotency-Key %s was applied: %v",
		unknown.IdempotencyKey, unknown.Last)
}

// Is is true for the error of a context that ended while the write was made.
func (unknown *OutcomeUnknownError) Is(target error) bool {
	return (target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(unknown.Last, target)
}

// GuardError is a refusal of the guard in PostgreSQL, of a transaction of the caller's own connection.
type GuardError struct {
	// Slug is the cause, as that of a Problem.
	Slug string
	// Err is the error of the driver.
	Err error
}

// Error returns the driver's message.
func (refusal *GuardError) Error() string {
	return "fencegate: " + refusal.Slug + ": " + refusal.Err.Error()
}

// Unwrap returns the error of the driver.
func (refusal *GuardError) Unwrap() error { return refusal.Err }

// errorOf returns the error of the type that belongs to a problem.
func errorOf(problem *Problem) error {
	switch problem.Slug {
	case slugLeaseLost:
		return &LeaseLostError{problem}
	case slugStaleToken:
		return &StaleFencingTokenError{problem}
	case slugNoQuorum, slugStorageUnavailable, slugOverloaded, slugShuttingDown:
		return &UnavailableError{problem}
	}
	return problem
}

// slugOf returns the slug of the problem in an error; empty if there is none.
func slugOf(err error) string {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem.Slug
	}
	return ""
}

// as returns whether an error has one of a type in it.
func as[T error](err error) bool {
	var found T
	return errors.As(err, &found)
}
