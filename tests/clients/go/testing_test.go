package fencegatetest

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"fencegate"
)

// eachPlace runs a test of the contract with a real gateway and with one in memory.
func eachPlace(t *testing.T, test func(t *testing.T, made *fencegate.Client, sku string)) {
	t.Run("real", func(t *testing.T) {
		made, sku := article(t)
		test(t, made, sku)
	})
	t.Run("memory", func(t *testing.T) { test(t, fencegate.NewTestGateway().Client(), "sku") })
}

func TestContractLeasesAreExclusiveAndTokensGrow(t *testing.T) {
	eachPlace(t, func(t *testing.T, made *fencegate.Client, sku string) {
		first := hold(t, made, sku, ttl(20*time.Second))
		left := first.Remaining()
		expect(t, left > 0 && left <= 20*time.Second, "%v", left)
		options := ttl(time.Second)
		options.Wait = 300 * time.Millisecond
		_, err := made.Acquire(background(t), "inventory/"+sku, options)
		expect(t, errors.Is(err, fencegate.ErrResourceLocked), "%v", err)
		remaining, _ := expectProblem(t, err, "resource-locked").Members["remaining_ms"].(json.Number).Int64()
		expect(t, remaining > 0 && remaining <= 20_000, "%v", remaining)
		must(t, first.Release(background(t)))
		must(t, first.Release(background(t)))
		expect(t, errors.Is(first.Check(), fencegate.ErrReleased), "%v", first.Check())
		second := hold(t, made, sku, ttl(20*time.Second))
		expect(t, second.FencingToken() > first.FencingToken(), "%v", second)
	})
}

func TestContractOwnerGetsFurtherHolds(t *testing.T) {
	eachPlace(t, func(t *testing.T, made *fencegate.Client, sku string) {
		options := ttl(20 * time.Second)
		options.Owner = "worker"
		first, second := hold(t, made, sku, options), hold(t, made, sku, options)
		expect(t, first.FencingToken() == second.FencingToken() && first.LeaseID() != second.LeaseID(), "%v", second)
		must(t, first.Release(background(t)))
		must(t, second.Check())
	})
}

func TestContractReadersShareAResourceAndExcludeItsWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, made *fencegate.Client, sku string) {
		ctx, name := background(t), "inventory/"+sku
		try := func(resource string, options fencegate.LeaseOptions) *fencegate.Lease {
			options.TTL, options.Wait = 20*time.Second, 5*time.Second
			lease, err := made.Acquire(ctx, resource, options)
			must(t, err)
			return lease
		}
		older := try(name, fencegate.LeaseOptions{})
		adopted, err := made.Adopt(ctx, older.LeaseID(), fencegate.LeaseOptions{})
		must(t, err)
		must(t, adopted.Release(ctx))
		reader := try(name, fencegate.LeaseOptions{Mode: fencegate.Shared, FenceOnGrant: true})
		mixed := try(name+"/order", fencegate.LeaseOptions{Shared: []string{name}})
		expect(t, reader.Mode() == fencegate.Shared && reader.Resources()[0] == name && reader.Shared() == nil, "%v", reader)
		expect(t, mixed.Mode() == fencegate.Exclusive && mixed.Shared()[0] == name, "%v", mixed)
		for _, options := range []fencegate.LeaseOptions{{}, {AnyOf: []string{name + "/order"}}} {
			_, err := made.TryAcquire(ctx, name, options)
			expect(t, errors.Is(err, fencegate.ErrResourceLocked), "%v", err)
		}
		_, err = older.Write(ctx, sell(sku))
		var stale *fencegate.StaleFencingTokenError
		var lost *fencegate.LeaseLostError // it may know the end of its lease
		expect(t, errors.As(err, &stale) || errors.As(err, &lost), "%v", err)
		_, err = reader.Write(ctx, sell(sku))
		expect(t, errors.Is(err, fencegate.ErrSharedLease) && expectProblem(t, err, "shared-lease").Status == 403, "%v", err)
		must(t, reader.Check())
		must(t, reader.Release(ctx))
		must(t, mixed.Release(ctx))
		writer := try(name, fencegate.LeaseOptions{})
		expect(t, writer.FencingToken() > reader.FencingToken(), "%v", writer)
		_, err = made.TryAcquire(ctx, name, fencegate.LeaseOptions{Mode: fencegate.Shared})
		expect(t, errors.Is(err, fencegate.ErrResourceLocked), "%v", err)
		must(t, writer.Release(ctx))
	})
}

func TestFencedReadRefusesOlderWritersAndLateReaders(t *testing.T) {
	gateway, ctx := fencegate.NewTestGateway(), background(t)
	made := gateway.Client()
	gateway.Reads["/v1/tables/inventory"] = []any{}
	older := hold(t, made, "a", fencegate.LeaseOptions{})
	adopted, err := made.Adopt(ctx, older.LeaseID(), fencegate.LeaseOptions{})
	must(t, err)
	must(t, adopted.Release(ctx))
	reader := hold(t, made, "b", fencegate.LeaseOptions{Shared: []string{"inventory/a"}})
	read := func() error {
		var rows []any
		return made.Get(ctx, "/v1/tables/inventory", nil, reader, &rows)
	}
	must(t, read())
	var stale *fencegate.StaleFencingTokenError
	_, err = older.Write(ctx, sell("a"))
	expect(t, errors.As(err, &stale) && len(gateway.Writes()) == 0, "%v", err)
	gateway.RaiseFence("inventory/a")
	expect(t, errors.As(read(), &stale), "the reader is late")
}

func TestSealOfASharedLeaseIsRefusedByName(t *testing.T) {
	options := fencegate.LeaseOptions{Mode: fencegate.Shared, Seal: true}
	_, err := fencegate.NewTestGateway().Client().TryAcquire(background(t), "a", options)
	expect(t, err != nil && strings.Contains(err.Error(), "Seal"), "%v", err)
}

func TestContractWriteIsAppliedOnceForItsKey(t *testing.T) {
	eachPlace(t, func(t *testing.T, made *fencegate.Client, sku string) {
		options := fencegate.OneShotOptions{IdempotencyKey: "contract-" + sku, Wait: 500 * time.Millisecond}
		write := func(quantity int) (*fencegate.WriteResult, error) {
			operation := fencegate.Update("inventory").Where("sku", sku).Add("stock", quantity).ExpectRows(1)
			return made.OneShotWrite(background(t), []string{"inventory/" + sku}, options, operation)
		}
		first, err := write(-1)
		must(t, err)
		again, err := write(-1)
		must(t, err)
		expect(t, !first.Replayed && again.Replayed && first.WriteID == again.WriteID, "%+v", again)
		expect(t, first.Results[0].RowsAffected == 1 && first.Fences[0].Resource == "inventory/"+sku, "%+v", first)
		_, err = write(-2)
		expectProblem(t, err, "idempotency-mismatch")
		lease := hold(t, made, sku, ttl(20*time.Second))
		result, err := lease.WriteWith(background(t), fencegate.WriteOptions{ThenRelease: true}, sell(sku))
		must(t, err)
		expect(t, result.Released && result.Fences[0].FencingToken == lease.FencingToken(), "%+v", result)
		hold(t, made, sku, ttl(20*time.Second))
	})
}

func tick(t *testing.T, made *fencegate.Client, resource string) bool {
	runs := 0
	isRun, err := made.RunOncePerTick(background(t), resource, 10*time.Minute, fencegate.LeaseOptions{},
		func(ctx context.Context, lease *fencegate.Lease) error {
			runs++
			return lease.Check()
		})
	must(t, err)
	expect(t, isRun == (runs == 1) && runs < 2, "%v: %d runs", isRun, runs)
	return isRun
}

func TestContractWorkIsRunOnceInATick(t *testing.T) {
	eachPlace(t, func(t *testing.T, made *fencegate.Client, sku string) {
		expect(t, tick(t, made, "inventory/"+sku), "it is the first")
		expect(t, !tick(t, made, "inventory/"+sku), "it is the same tick")
		hold(t, made, sku, ttl(20*time.Second))
		expect(t, !tick(t, made, "inventory/"+sku), "it is held")
		hold(t, made, sku+"@tick", ttl(20*time.Second))
	})
}

func TestNextTickBeginsHalfOfItsPeriodLater(t *testing.T) {
	gateway := fencegate.NewTestGateway()
	made := gateway.Client()
	expect(t, tick(t, made, "a"), "it is the first")
	gateway.Advance(5*time.Minute - time.Millisecond)
	expect(t, !tick(t, made, "a"), "it is the same tick")
	gateway.Advance(time.Millisecond)
	expect(t, tick(t, made, "a"), "it is the next")
}

func TestTickThatCannotBeIsRefusedByName(t *testing.T) {
	made := fencegate.NewTestGateway().Client()
	for name, options := range map[string]fencegate.LeaseOptions{"every": {}, "Owner": {Owner: "w"},
		"Also": {Also: []string{"b"}}, "AnyOf": {AnyOf: []string{"b"}}, "Mode": {Mode: fencegate.Shared},
		"Shared": {Shared: []string{"b"}}} {
		every := time.Second
		if name == "every" {
			every--
		}
		_, err := made.RunOncePerTick(background(t), "a", every, options, nil)
		expect(t, err != nil && strings.Contains(err.Error(), name), "%s: %v", name, err)
	}
}

func TestFailureInATickIsThatOfTheCallAndCounts(t *testing.T) {
	made, failure := fencegate.NewTestGateway().Client(), errors.New("the work has failed")
	isRun, err := made.RunOncePerTick(background(t), "a", time.Minute, fencegate.LeaseOptions{},
		func(context.Context, *fencegate.Lease) error { return failure })
	expect(t, isRun && err == failure && !tick(t, made, "a"), "%v %v", isRun, err)
}

func TestClockOfTheTestRenewsLeasesAndLetsThemEnd(t *testing.T) {
	gateway := fencegate.NewTestGateway()
	lease := acquire(t, gateway.Client(), ttl(30*time.Second))
	gateway.Advance(time.Hour)
	must(t, lease.Check())
	gateway.StopRenewals()
	gateway.Advance(31 * time.Second)
	await(t, "it is over", lease.Done())
	expectError[*fencegate.LeaseLostError](t, lease.Check())
	expect(t, acquire(t, gateway.Client(), ttl(time.Second)).FencingToken() == 2, "the next token")
}

func TestLeaseIsLostWhenTheTestSaysSo(t *testing.T) {
	gateway := fencegate.NewTestGateway()
	err := gateway.Client().WithLease(background(t), "a", ttl(30*time.Second),
		func(ctx context.Context, lease *fencegate.Lease) error {
			gateway.Lose("a")
			await(t, "the context ends", ctx.Done())
			_, err := lease.Write(background(t), fencegate.Call("f"))
			expectError[*fencegate.LeaseLostError](t, err)
			return ctx.Err()
		})
	expectError[*fencegate.LeaseLostError](t, err)
	expect(t, len(gateway.Writes()) == 0, "%v", gateway.Writes())
}

func TestWritesAreRefusedAsTheTestSays(t *testing.T) {
	gateway := fencegate.NewTestGateway()
	made := gateway.Client()
	gateway.RefuseWrite("expectation-failed", 409, map[string]any{"rows_affected": 0})
	_, err := writeOnce(t, made)
	expect(t, expectProblem(t, err, "expectation-failed").Members["rows_affected"] == json.Number("0"), "%v", err)
	lease := acquire(t, made, ttl(30*time.Second))
	gateway.RaiseFence("a")
	_, err = lease.Write(background(t), fencegate.Call("f"))
	expectError[*fencegate.StaleFencingTokenError](t, err)
	await(t, "it is lost", lease.Done())
	_ = lease.Release(background(t))
	_, err = writeOnce(t, made)
	must(t, err)
	written := gateway.Writes()
	expect(t, len(written) == 1 && written[0].FencingToken == 4 && written[0].IdempotencyKey == "k", "%+v", written)
}

func TestReadsAndHistoryAreThoseOfTheTest(t *testing.T) {
	gateway := fencegate.NewTestGateway()
	gateway.Reads["/v1/tables/inventory"] = []any{map[string]any{"stock": 3}}
	made := gateway.Client()
	lease := acquire(t, made, ttl(30*time.Second))
	var rows []map[string]any
	must(t, made.Get(background(t), "/v1/tables/inventory", url.Values{"sku": {"eq.1"}}, lease, &rows))
	expect(t, rows[0]["stock"] == json.Number("3"), "%v", rows)
	expectProblem(t, get(background(t), made), "not-found")
	must(t, lease.Release(background(t)))
	events := made.History(url.Values{"resource": {"a"}})
	expect(t, events.Next(background(t)) && events.Event().Event == "lease_released", "%v", events.Err())
	expect(t, events.Next(background(t)) && events.Event().Event == "lease_granted", "%v", events.Err())
	expect(t, !events.Next(background(t)), "there is no more")
}
