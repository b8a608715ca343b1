package fencegatetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"fencegate"
)

var (
	outcomeUnknown = problem(503, "storage-unavailable", `"outcome_unknown": true`, `"write_id": "W"`)
	inHistory      = reply{status: 200, body: `{"next_cursor": null,
		"items": [{"id": 1, "at": "2026-11-21T10:00:00Z", "event": "write_applied", "write_id": "W"}]}`}
)

// script answers the calls of one kind one after the other; the last answer is repeated.
func script(answers map[string][]reply) func(string, int) reply {
	return func(call string, before int) reply {
		listed := answers[call]
		if before >= len(listed) {
			before = len(listed) - 1
		}
		return listed[before]
	}
}

func writeOnce(t *testing.T, made *fencegate.Client) (*fencegate.WriteResult, error) {
	options := fencegate.OneShotOptions{IdempotencyKey: "k", Wait: time.Second}
	return made.OneShotWrite(background(t), []string{"a"}, options,
		fencegate.Delete("t").Where("id", 1))
}

func TestWriteKeepsItsKeyOverRepeats(t *testing.T) {
	replayed := reply{status: 200, body: `{"write_id": "W", "fencing_token": 18446744073709551615, "rows_left_out": true,
		"results": [{"rows_affected": 1, "rows": [{"n": 9007199254740993}]}, {"value": 1.10}],
		"fences": [{"resource": "a", "fencing_token": 1, "last_fencing_token": 2}]}`}
	replayed.header = http.Header{"Idempotency-Replayed": {"true"}}
	answers := []reply{noAnswer, {status: 504}, problem(409, "idempotency-in-progress").after(1), replayed}
	fake := newFake(t, script(map[string][]reply{write: answers}), nil)
	result, err := writeOnce(t, client(t, nil, fake))
	must(t, err)
	expect(t, strings.Join(fake.keys, "") == "kkkk", "%v", fake.keys)
	expected := &fencegate.WriteResult{
		WriteID:      "W",
		FencingToken: 1<<64 - 1,
		Fences:       []fencegate.Fence{{Resource: "a", FencingToken: 1, LastFencingToken: 2}},
		Results: []fencegate.Result{
			{RowsAffected: 1, Rows: []map[string]any{{"n": json.Number("9007199254740993")}}},
			{Value: json.Number("1.10")},
		},
		Replayed:    true,
		RowsLeftOut: true,
	}
	expect(t, reflect.DeepEqual(result, expected), "%+v", result)
}

func TestWriteWithoutAnswerIsOutcomeUnknown(t *testing.T) {
	answers := []reply{noAnswer, {status: 502}, {status: 200, body: "maintenance"}, {status: 200, body: `{}`}}
	for _, answer := range answers {
		answer := answer
		fake := newFake(t, func(string, int) reply { return answer }, nil)
		_, err := writeOnce(t, client(t, retryFor(-1), fake))
		unknown := expectError[*fencegate.OutcomeUnknownError](t, err)
		expect(t, unknown.IdempotencyKey == "k" && unknown.WriteID == "", "%+v", unknown)
		var unavailable *fencegate.UnavailableError
		expect(t, !errors.As(err, &unavailable), "an error after which nothing was changed: %v", err)
	}
}

func TestWriteWhoseContextEndsIsOutcomeUnknown(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(background(t))
	fake := newFake(t, func(string, int) reply {
		cancel()
		<-release
		return noAnswer
	}, nil)
	made := client(t, nil, fake)
	_, err := made.OneShotWrite(ctx, []string{"a"}, fencegate.OneShotOptions{}, fencegate.Call("f"))
	unknown := expectError[*fencegate.OutcomeUnknownError](t, err)
	expect(t, errors.Is(err, context.Canceled) && unknown.IdempotencyKey == fake.keys[0], "%v", err)
	_, err = made.OneShotWrite(ctx, []string{"a"}, fencegate.OneShotOptions{}, fencegate.Call("f"))
	var again *fencegate.OutcomeUnknownError
	expect(t, errors.Is(err, context.Canceled) && !errors.As(err, &again), "nothing was sent: %v", err)
}

func TestUnknownOutcomeThatIsInTheHistoryIsApplied(t *testing.T) {
	writes := []reply{outcomeUnknown, problem(422, "idempotency-mismatch")}
	fake := newFake(t, script(map[string][]reply{write: writes, history: {inHistory}}), nil)
	made := client(t, nil, fake)
	result, err := writeOnce(t, made)
	must(t, err)
	expect(t, result.WriteID == "W" && result.Results == nil && result.Replayed, "%+v", result)
	isApplied, err := made.WasApplied(background(t), "W")
	expect(t, isApplied && err == nil, "%v", err)
}

func TestWriteThatIsRefusedForItsLeaseLosesIt(t *testing.T) {
	for _, answer := range []struct {
		reply
		releases int
	}{{problem(412, "stale-fencing-token"), 1}, {problem(410, "lease-lost"), 0}} {
		answer := answer
		fake := newFake(t, keeper(granted(60_000, 60_000), func(string, int) reply { return answer.reply }), nil)
		made := client(t, nil, fake)
		lease := acquire(t, made, notRenewed)
		options := fencegate.WriteOptions{RequireLive: true, ReturnRows: true}
		_, err := lease.WriteWith(background(t), options, fencegate.Call("f"))
		expect(t, err != nil, "it is refused")
		if answer.releases > 0 {
			expectError[*fencegate.StaleFencingTokenError](t, err)
		}
		await(t, "it is lost", lease.Done())
		expectError[*fencegate.LeaseLostError](t, lease.Release(background(t)))
		expectError[*fencegate.LeaseLostError](t, lease.Release(background(t)))
		// The nodes may still have a lease whose token the database refuses.
		expect(t, fake.Count(release) == answer.releases, "%v", fake.calls)
		_, err = lease.Write(background(t), fencegate.Call("f"))
		expectError[*fencegate.LeaseLostError](t, err)
	}
}

func TestOperationsAreThoseOfTheContract(t *testing.T) {
	base := fencegate.Update("t").Where("id", 1)
	changed := base.WhereOp("n", "gte", 2).WhereOp("n", "lt", 9).Set("note", nil).Add("n", -1).ExpectRows(1)
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, each := range []struct {
		operation fencegate.Operation
		expected  string
	}{
		{base, `{"update":"t","where":{"id":{"eq":1}}}`},
		{changed, `{"add":{"n":-1},"expect_rows":1,"set":{"note":null},"update":"t",` +
			`"where":{"id":{"eq":1},"n":{"gte":2,"lt":9}}}`},
		{fencegate.Insert("t").Values(map[string]any{"a": []int{1, 2}, "b": true}),
			`{"insert":"t","values":{"a":[1,2],"b":true}}`},
		{fencegate.Delete("t").WhereOp("id", "in", []string{"x"}), `{"delete":"t","where":{"id":{"in":["x"]}}}`},
		{fencegate.Call("f").Arguments(map[string]any{"at": at}), `{"args":{"at":"2026-11-21T10:00:00Z"},"call":"f"}`},
	} {
		text, err := json.Marshal(each.operation)
		must(t, err)
		expect(t, string(text) == each.expected, "%s", text)
	}
}

func TestWriteThatCannotBeSentIsRefused(t *testing.T) {
	fake := newFake(t, func(string, int) reply { return applied }, nil)
	made := client(t, nil, fake)
	for name, operations := range map[string][]fencegate.Operation{
		"none":      {},
		"bytes":     {fencegate.Update("t").Set("a", []byte("x"))},
		"NaN":       {fencegate.Update("t").Set("a", math.NaN())},
		"condition": {fencegate.Update("t").Where("a", 1).WhereOp("a", "eq", 2)},
	} {
		_, err := made.OneShotWrite(background(t), []string{"a"}, fencegate.OneShotOptions{}, operations...)
		expect(t, err != nil, "%s", name)
	}
	options := fencegate.OneShotOptions{IdempotencyKey: "a b"}
	_, err := made.OneShotWrite(background(t), []string{"a"}, options, fencegate.Call("f"))
	expect(t, err != nil && len(fake.calls) == 0, "%v %v", err, fake.calls)
}

// driverError is an error as drivers of PostgreSQL have it.
type driverError string

func (state driverError) Error() string    { return "of the database" }
func (state driverError) SQLState() string { return string(state) }

func TestErrorsOfTheGuardAreTranslated(t *testing.T) {
	for state, slug := range map[string]string{
		"FG401": "lease-not-authentic", "FG403": "resource-not-covered", "FG428": "fencing-required",
		"FG500": "internal-error",
	} {
		err := fmt.Errorf("a statement: %w", driverError(state))
		found := expectError[*fencegate.GuardError](t, fencegate.GuardErrorOf(err))
		expect(t, found.Slug == slug, "%v", found)
		expectError[driverError](t, found)
	}
	expectError[*fencegate.StaleFencingTokenError](t, fencegate.GuardErrorOf(driverError("FG412")))
	expectError[*fencegate.UnavailableError](t, fencegate.GuardErrorOf(driverError("FG503")))
	expect(t, fencegate.GuardErrorOf(driverError("23505")) == driverError("23505"), "others are unchanged")
	must(t, fencegate.GuardErrorOf(nil))
}

func TestEnterPassesResourcesAndTokenAsTheDriverNeedsThem(t *testing.T) {
	answer := granted(60_000, 60_000)
	answer.body = strings.Replace(answer.body, `"resource": "a"`, `"resources": ["a", "b\"\\,{}"]`, 1)
	fake := newFake(t, keeper(answer, nil), nil)
	lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{NotRenewed: true, Also: []string{`b"\,{}`}})
	var passed []any
	// As pgx, whose result has a type of its own.
	execute := func(_ context.Context, _ string, arguments ...any) (struct{}, error) {
		passed = arguments
		return struct{}{}, nil
	}
	must(t, fencegate.EnterWithProof(background(t), execute, lease))
	expect(t, passed[0] == `{"a","b\"\\,{}"}` && passed[1] == int64(1<<53-1) && passed[2] == "L", "%v", passed)
	must(t, fencegate.Enter(background(t), execute, lease))
	expect(t, passed[2] == nil, "%v", passed)
	must(t, lease.Release(background(t)))
	expect(t, errors.Is(fencegate.Enter(background(t), execute, lease), fencegate.ErrReleased), "it is released")
}

func TestEnterOfASharedLeaseIsRefusedAndEnterSharedReads(t *testing.T) {
	answer := granted(60_000, 60_000)
	answer.body = strings.Replace(answer.body, `"resource": "a"`, `"resource": "a", "mode": "shared"`, 1)
	options := fencegate.LeaseOptions{NotRenewed: true, Mode: fencegate.Shared}
	lease := acquire(t, client(t, nil, newFake(t, keeper(answer, nil), nil)), options)
	var queries []string
	execute := func(_ context.Context, query string, arguments ...any) (struct{}, error) {
		queries = append(queries, fmt.Sprint(query, arguments))
		return struct{}{}, nil
	}
	expect(t, errors.Is(fencegate.Enter(background(t), execute, lease), fencegate.ErrSharedLease), "it may not write")
	must(t, fencegate.EnterSharedWithProof(background(t), execute, lease))
	expect(t, len(queries) == 1 && strings.Contains(queries[0], "enter_shared") &&
		strings.HasSuffix(queries[0], `[{"a"} 9007199254740991 L]`), "%v", queries)
}

func TestWriteThatReleasesIsNoLossUnlessItFails(t *testing.T) {
	for _, isApplied := range []bool{true, false} {
		writing, renewed := make(chan struct{}), make(chan struct{})
		fake := newFake(t, func(call string, before int) reply {
			switch call {
			case acquisition:
				return granted(1500, 1500)
			case write:
				close(writing)
				<-renewed
				time.Sleep(1500 * time.Millisecond) // longer than what is left of the validity
				if !isApplied {
					return problem(409, "expectation-failed")
				}
				return reply{status: 200, body: `{"write_id": "W", "results": [], "fences": [], "released": true}`}
			}
			<-writing
			if before == 0 {
				close(renewed)
			}
			return problem(410, "lease-lost")
		}, nil)
		lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{})
		result, err := lease.WriteWith(background(t), fencegate.WriteOptions{ThenRelease: true}, fencegate.Call("f"))
		await(t, "it is over", lease.Done())
		if isApplied {
			must(t, err)
			expect(t, result.Released && !result.Unsealed && errors.Is(lease.Check(), fencegate.ErrReleased), "%+v", result)
			must(t, lease.Release(background(t)))
		} else {
			expectProblem(t, err, "expectation-failed")
			expectError[*fencegate.LeaseLostError](t, lease.Release(background(t)))
		}
		expect(t, fake.Count(release) == 0, "%v", fake.calls)
	}
}
