package fencegate

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// Execute runs a statement in the caller's transaction: tx.ExecContext of database/sql, or tx.Exec of pgx.
type Execute[Result any] func(ctx context.Context, query string, arguments ...any) (Result, error)

// Enter opens the resources of a lease, all or none, for the current transaction of the caller's own connection, and
// refuses it if a newer holder has written or read; before that it enters what the lease shares, as EnterShared.
// Begin the transaction first, and read what a change depends on after this call: what was read before, although the
// lease was held, may be older than the last change of the holder before, for whose transaction this call waits.
//
// Errors: LeaseLostError if the lease is over; ErrSharedLease; those of GuardErrorOf; roll back after each.
func Enter[Result any](ctx context.Context, execute Execute[Result], lease *Lease) error {
	return enter(ctx, execute, lease, nil)
}

// EnterShared lets the current transaction read what a lease shares, and refuses it if a newer holder has written.
// Later reads of the transaction see what no older holder can overwrite any more. Without effect on a lease that shares
// nothing. Errors: those of Enter.
func EnterShared[Result any](ctx context.Context, execute Execute[Result], lease *Lease) error {
	return enterShared(ctx, execute, lease, nil)
}

// EnterSharedWithProof is EnterShared with the proof of EnterWithProof.
func EnterSharedWithProof[Result any](ctx context.Context, execute Execute[Result], lease *Lease) error {
	return enterShared(ctx, execute, lease, lease.id)
}

// EnterWithProof is Enter with the lease's ID as the proof that a gateway gave the token, for a database that requires
// proofs.
func EnterWithProof[Result any](ctx context.Context, execute Execute[Result], lease *Lease) error {
	return enter(ctx, execute, lease, lease.id)
}

func enter[Result any](ctx context.Context, execute Execute[Result], lease *Lease, proof any) error {
	if lease.mode == Shared {
		return ErrSharedLease
	}
	if err := lease.Check(); err != nil {
		return err
	}
	if len(lease.shared) > 0 { // first, as gateways do: another order could deadlock
		if err := enterShared(ctx, execute, lease, proof); err != nil {
			return err
		}
	}
	// As a text, because drivers differ in the types that they take for an array.
	resources := arrayOf(lease.resources)
	query := "select fencing.enter($1::text::text[], $2::bigint, $3::text)"
	_, err := execute(ctx, query, resources, int64(lease.token), proof)
	return GuardErrorOf(err)
}

func enterShared[Result any](ctx context.Context, execute Execute[Result], lease *Lease, proof any) error {
	if err := lease.Check(); err != nil {
		return err
	}
	shared := lease.shared
	if lease.mode == Shared {
		shared = lease.resources
	}
	query := "select fencing.enter_shared(name, $2::bigint, $3::text) from unnest($1::text::text[]) as name " +
		`order by name collate "C"`
	_, err := execute(ctx, query, arrayOf(shared), int64(lease.token), proof)
	return GuardErrorOf(err)
}

// Beginner begins a transaction of database/sql: a *sql.DB or a *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// InTransaction begins a transaction, enters what the lease has or shares before anything is read, calls the function,
// and commits; or rolls back if the function returns an error or panics. Errors of the guard are those of GuardErrorOf.
func InTransaction(ctx context.Context, database Beginner, lease *Lease,
	function func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after a commit
	enter := Enter[sql.Result]
	if lease.mode == Shared {
		enter = EnterShared[sql.Result]
	}
	if err := enter(ctx, tx.ExecContext, lease); err != nil {
		return err
	}
	if err := function(ctx, tx); err != nil {
		return GuardErrorOf(err)
	}
	return GuardErrorOf(tx.Commit())
}

// GuardErrorOf translates an error of any statement of a transaction whose SQLSTATE is one of the guard's, which also
// refuses changes of rows: a StaleFencingTokenError, an UnavailableError or a GuardError that has the driver's error in
// it. It returns any other error, and nil, unchanged. The driver's error needs a method SQLState, as those of pgx and
// lib/pq have.
func GuardErrorOf(err error) error {
	var stated interface{ SQLState() string }
	if !errors.As(err, &stated) {
		return err
	}
	switch stated.SQLState() {
	case "FG401":
		return &GuardError{slugNotAuthentic, err}
	case "FG403":
		return &GuardError{slugNotCovered, err}
	case "FG412":
		return &StaleFencingTokenError{err}
	case "FG428":
		return &GuardError{slugFencingRequired, err}
	case "FG500":
		return &GuardError{slugInternalError, err}
	case "FG503":
		return &UnavailableError{err}
	}
	return err
}

// arrayOf returns an array of PostgreSQL as text.
func arrayOf(texts []string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, `"`+escaped.Replace(text)+`"`)
	}
	return "{" + strings.Join(quoted, ",") + "}"
}
