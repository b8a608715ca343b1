package fencegatetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencegate"

	_ "github.com/lib/pq"
)

var articles atomic.Int32

// article returns a client of both gateways, and an article of which there are 10 pieces and that no other test uses.
func article(t *testing.T) (*fencegate.Client, string) {
	return clientAs(t, "worker", nil), newArticle()
}

func newArticle() string { return fmt.Sprintf("go-%d", articles.Add(1)) }

// clientAs returns a client of both gateways, which tests/clients/test_go.py has started, as a principal.
func clientAs(t *testing.T, principal string, change func(*fencegate.Options)) *fencegate.Client {
	t.Helper()
	options := fencegate.Options{
		URLs:       strings.Fields(setting(t, "GATEWAYS")),
		Credential: setting(t, "KEY_"+strings.ToUpper(principal)),
		Logf:       t.Logf,
	}
	if change != nil {
		change(&options)
	}
	made, err := fencegate.New(options)
	must(t, err)
	return made
}

func firstAlone(options *fencegate.Options) { options.URLs = options.URLs[:1] }

func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv("FENCEGATE_" + name)
	expect(t, value != "", "FENCEGATE_%s is not set: tests/clients/test_go.py runs the tests of real gateways", name)
	return value
}

// fault asks for a fault by its name, with its argument after a slash if it has one, and for its end after the test.
func fault(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { send(t, http.MethodPost, setting(t, "FAULTS")+"recover", "") })
	send(t, http.MethodPost, setting(t, "FAULTS")+name, "")
}

func send(t *testing.T, method, address, body string) {
	t.Helper()
	request, err := http.NewRequest(method, address, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+setting(t, "KEY_WORKER"))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	text, _ := io.ReadAll(answer.Body)
	must(t, answer.Body.Close())
	expect(t, answer.StatusCode == 204, "%s: %d %s", address, answer.StatusCode, text)
}

// revoke takes a lease away, as an operator does, at the second gateway.
func revoke(t *testing.T, resource string) {
	address := strings.Fields(setting(t, "GATEWAYS"))[1] + "/v1/resources/" + url.PathEscape(resource) + "/lease"
	send(t, http.MethodDelete, address, `{"reason": "a test"}`)
}

func database(t *testing.T) *sql.DB {
	t.Helper()
	opened, err := sql.Open("postgres", setting(t, "DATABASE"))
	must(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

func expectStock(t *testing.T, sku string, expected int) {
	t.Helper()
	var stock int
	must(t, database(t).QueryRow("select stock from inventory where sku = $1", sku).Scan(&stock))
	expect(t, stock == expected, "the stock is %d", stock)
}

func sell(sku string) fencegate.Operation {
	return fencegate.Update("inventory").Where("sku", sku).Add("stock", -1).ExpectRows(1)
}

func ttl(duration time.Duration) fencegate.LeaseOptions {
	return fencegate.LeaseOptions{TTL: duration, Wait: generous}
}

// hold acquires a lease on an article that is released at the end of the test.
func hold(t *testing.T, made *fencegate.Client, sku string, options fencegate.LeaseOptions) *fencegate.Lease {
	t.Helper()
	lease, err := made.Acquire(background(t), "inventory/"+sku, options)
	must(t, err)
	t.Cleanup(func() { _ = lease.Release(background(t)) })
	return lease
}

// awaitRenewal waits until the validity of a lease, which decreases with time, is longer again.
func awaitRenewal(t *testing.T, lease *fencegate.Lease) {
	t.Helper()
	least := lease.Remaining()
	eventually(t, "the lease is renewed", func() bool {
		must(t, lease.Check())
		left := lease.Remaining()
		if left < least {
			least = left
		}
		return left > least+100*time.Millisecond
	})
}

func TestRealLeaseIsExclusiveAndTokensGrow(t *testing.T) {
	made, sku := article(t)
	first := hold(t, made, sku, ttl(10*time.Second))
	_, err := made.TryAcquire(background(t), "inventory/"+sku, fencegate.LeaseOptions{})
	expect(t, errors.Is(err, fencegate.ErrResourceLocked), "%v", err)
	must(t, first.Release(background(t)))
	second := hold(t, made, sku, ttl(10*time.Second))
	expect(t, second.FencingToken() > first.FencingToken() && first.FencingToken() > 1<<32,
		"%d %d", first.FencingToken(), second.FencingToken())
}

func TestRealLeaseIsWaitedForLongerThanOneRequestMayWait(t *testing.T) {
	made, sku := article(t)
	first := hold(t, made, sku, ttl(10*time.Second))
	next := make(chan error, 1)
	go func() {
		next <- made.WithLease(background(t), "inventory/"+sku, fencegate.LeaseOptions{}, doNothing)
	}()
	select {
	case err := <-next:
		t.Fatalf("it was held: %v", err)
	case <-time.After(time.Second): // lease.max_wait_ms of the gateways is 600
	}
	must(t, first.Release(background(t)))
	must(t, <-next)
}

func TestRealRevocationEndsTheContextAtOnce(t *testing.T) {
	made, sku := article(t)
	work := func(ctx context.Context, lease *fencegate.Lease) error {
		fault(t, "await_watch/"+lease.LeaseID())
		revoke(t, "inventory/"+sku)
		await(t, "the context ends, long before a renewal", ctx.Done())
		return ctx.Err()
	}
	err := made.WithLease(background(t), "inventory/"+sku, ttl(time.Minute), work)
	expectError[*fencegate.LeaseLostError](t, err)
}

func TestRealAcquireThatIsGivenUpLeavesNoLease(t *testing.T) {
	made, sku := article(t)
	fault(t, "delay_replies")
	ctx, cancel := context.WithTimeout(background(t), 300*time.Millisecond) // the answer is on its way for 600 ms
	defer cancel()
	_, err := made.Acquire(ctx, "inventory/"+sku, ttl(time.Minute))
	expect(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	hold(t, made, sku, ttl(10*time.Second)) // waits for less than the ttl of a lease that was left
}

func TestRealAcquireThatWaitsAndIsGivenUpLeavesTheQueue(t *testing.T) {
	made, sku := article(t)
	first := hold(t, made, sku, ttl(10*time.Second))
	ctx, cancel := context.WithTimeout(background(t), 200*time.Millisecond)
	defer cancel()
	_, err := made.Acquire(ctx, "inventory/"+sku, ttl(time.Minute))
	expect(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	must(t, first.Release(background(t)))
	hold(t, made, sku, ttl(10*time.Second))
}

func TestRealLostAnswersHaveNoSecondEffect(t *testing.T) {
	made, sku := clientAs(t, "worker", firstAlone), newArticle()
	fault(t, "cut_reply")
	lease := hold(t, made, sku, ttl(10*time.Second))
	fault(t, "cut_reply")
	_, err := lease.Write(background(t), sell(sku))
	must(t, err)
	fault(t, "cut_reply")
	must(t, lease.Release(background(t)))
	expectStock(t, sku, 9)
	hold(t, made, sku, ttl(10*time.Second))
}

func TestRealLeaseContinuesWhenItsGatewayIsKilledAndRestarted(t *testing.T) {
	made, sku := article(t)
	lease := hold(t, made, sku, ttl(6*time.Second))
	fault(t, "kill_gateway")
	awaitRenewal(t, lease)
	_, err := lease.Write(background(t), sell(sku))
	must(t, err)
	fault(t, "recover")
	_, err = lease.Write(background(t), sell(sku))
	must(t, err)
	expectStock(t, sku, 8)
}

func TestRealLeaseIsLostWhenItsGatewayHangs(t *testing.T) {
	made, sku := clientAs(t, "worker", firstAlone), newArticle()
	work := func(ctx context.Context, lease *fencegate.Lease) error {
		fault(t, "pause_gateway")
		await(t, "the context ends", ctx.Done())
		expect(t, lease.Check() != nil, "it is over")
		return nil
	}
	err := made.WithLease(background(t), "inventory/"+sku, ttl(time.Second), work)
	expectError[*fencegate.LeaseLostError](t, err)
}

func TestRealOneShotWriteIsExecutedOnceForItsKey(t *testing.T) {
	made, sku := article(t)
	options := fencegate.OneShotOptions{IdempotencyKey: "order-" + sku, ReturnRows: true, Wait: 500 * time.Millisecond}
	first, err := made.OneShotWrite(background(t), []string{"inventory/" + sku}, options, sell(sku))
	must(t, err)
	second, err := made.OneShotWrite(background(t), []string{"inventory/" + sku}, options, sell(sku))
	must(t, err)
	expect(t, second.Replayed && second.WriteID == first.WriteID && first.FencingToken > 0, "%+v %+v", first, second)
	expect(t, fmt.Sprint(first.Results[0].Rows[0]["stock"]) == "9", "%+v", first)
	expect(t, first.Fences[0].LastFencingToken > first.FencingToken, "it is sealed: %+v", first)
	expectStock(t, sku, 9)
}

func TestRealWriteOfSeveralResourcesIsAllOrNothing(t *testing.T) {
	made, sku := article(t)
	other := newArticle()
	lease := hold(t, made, sku, fencegate.LeaseOptions{TTL: 10 * time.Second, Also: []string{"inventory/" + other}})
	_, err := lease.Write(background(t), sell(sku), sell(other).ExpectRows(2))
	found := expectProblem(t, err, "expectation-failed")
	expect(t, found.Status == 409 && found.RequestID != "", "%+v", found)
	_, err = lease.Write(background(t), sell(sku), sell(other))
	must(t, err)
	expectStock(t, sku, 9)
	expectStock(t, other, 9)
	var rows []map[string]any
	query := url.Values{"sku": {"eq." + sku}, "select": {"stock"}}
	must(t, made.Get(background(t), "/v1/tables/inventory", query, lease, &rows))
	expect(t, fmt.Sprint(rows[0]["stock"]) == "9", "%v", rows)
}

func TestRealWriteOfAnOlderHolderIsStale(t *testing.T) {
	made, sku := article(t)
	old := hold(t, made, sku, ttl(time.Minute))
	_, err := database(t).Exec("select fencing.enter($1::text, $2::bigint)", "inventory/"+sku, int64(old.FencingToken()+1))
	must(t, err)
	_, err = old.Write(background(t), sell(sku))
	stale := expectError[*fencegate.StaleFencingTokenError](t, err)
	expectProblem(t, stale, "stale-fencing-token")
	expectError[*fencegate.LeaseLostError](t, old.Release(background(t)))
	hold(t, made, sku, ttl(10*time.Second)) // it was released too
	expectStock(t, sku, 10)
}

func TestRealUnknownOutcomeIsResolvedAfterTheRepair(t *testing.T) {
	made, sku := article(t)
	hasty := clientAs(t, "worker", func(options *fencegate.Options) {
		options.RequestTimeout, options.RetryFor = time.Second, -1
	})
	lease := hold(t, hasty, sku, ttl(30*time.Second))
	fault(t, "hold_commits")
	_, err := lease.Write(background(t), sell(sku))
	unknown := expectError[*fencegate.OutcomeUnknownError](t, err)
	fault(t, "recover")
	again := fencegate.WriteOptions{IdempotencyKey: unknown.IdempotencyKey}
	result, err := lease.WriteWith(background(t), again, sell(sku))
	must(t, err)
	isApplied, err := made.WasApplied(background(t), result.WriteID)
	must(t, err)
	expect(t, isApplied, "the history has it")
	expectStock(t, sku, 9)
	events := made.History(url.Values{"resource": {"inventory/" + sku}, "event": {"write_applied"}, "limit": {"1"}})
	count := 0
	for events.Next(background(t)) {
		event := events.Event()
		if event.WriteID == "" {
			continue // made by the test, in SQL
		}
		count++
		expect(t, event.WriteID == result.WriteID && event.FencingToken == lease.FencingToken(), "%+v", event)
	}
	must(t, events.Err())
	expect(t, count == 1, "%d events", count)
}

func TestRealRefusalsAreProblems(t *testing.T) {
	_, sku := article(t)
	resources := []string{"inventory/" + sku}
	_, err := clientAs(t, "limited", nil).OneShotWrite(background(t), resources, fencegate.OneShotOptions{}, sell(sku))
	expectProblem(t, err, "forbidden")
	nobody := clientAs(t, "worker", func(options *fencegate.Options) { options.Credential = "of nobody" })
	_, err = nobody.TryAcquire(background(t), "a", fencegate.LeaseOptions{})
	expectProblem(t, err, "unauthenticated")
}

func TestRealTransactionIsUnderTheLease(t *testing.T) {
	made, sku := article(t)
	other := newArticle()
	lease := hold(t, made, sku, fencegate.LeaseOptions{TTL: time.Minute, Also: []string{"inventory/" + other}})
	opened := database(t)
	change := "update inventory set stock = stock - 1 where sku = $1"
	must(t, fencegate.InTransaction(background(t), opened, lease, func(ctx context.Context, tx *sql.Tx) error {
		for _, name := range []string{sku, other} {
			if _, err := tx.ExecContext(ctx, change, name); err != nil {
				return err
			}
		}
		return nil
	}))
	failed := errors.New("of the function")
	err := fencegate.InTransaction(background(t), opened, lease, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, change, sku)
		must(t, err)
		return failed
	})
	expect(t, err == failed, "%v", err)
	err = fencegate.InTransaction(background(t), opened, lease, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, change, newArticle())
		return err
	})
	expect(t, expectError[*fencegate.GuardError](t, err).Slug == "resource-not-covered", "%v", err)
	_, err = opened.Exec(change, sku)
	expect(t, expectError[*fencegate.GuardError](t, fencegate.GuardErrorOf(err)).Slug == "fencing-required", "%v", err)

	_, err = opened.Exec("select fencing.enter($1::text, $2::bigint)", "inventory/"+sku, int64(lease.FencingToken()+1))
	must(t, err)
	err = fencegate.InTransaction(background(t), opened, lease, func(context.Context, *sql.Tx) error { return failed })
	expectError[*fencegate.StaleFencingTokenError](t, err)
	must(t, lease.Release(background(t)))
	err = fencegate.InTransaction(background(t), opened, lease, func(context.Context, *sql.Tx) error { return failed })
	expect(t, errors.Is(err, fencegate.ErrReleased), "%v", err)
	expectStock(t, sku, 9)
	expectStock(t, other, 9)
}
