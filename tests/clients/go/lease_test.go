package fencegatetest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencegate"
)

var notRenewed = fencegate.LeaseOptions{NotRenewed: true}

func doNothing(context.Context, *fencegate.Lease) error { return nil }

// keeper answers acquisitions with a lease, releases with success, and other calls by a function.
func keeper(lease reply, other func(call string, before int) reply) func(string, int) reply {
	return func(call string, before int) reply {
		switch call {
		case acquisition:
			return lease
		case release:
			return released
		}
		return other(call, before)
	}
}

// acquire acquires a lease that is released at the end of the test.
func acquire(t *testing.T, made *fencegate.Client, options fencegate.LeaseOptions) *fencegate.Lease {
	t.Helper()
	lease, err := made.Acquire(background(t), "a", options)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lease.Release(ctx)
	})
	return lease
}

func TestTokenKeepsAllDigits(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 60_000), nil), nil)
	lease := acquire(t, client(t, nil, fake), notRenewed)
	expect(t, lease.FencingToken() == 1<<53-1 && lease.Resources()[0] == "a" && lease.Owner() == "", "%v", lease)
	large := newFake(t, func(string, int) reply {
		answer := granted(60_000, 60_000)
		answer.body = strings.Replace(answer.body, "9007199254740991", "18446744073709551615", 1)
		return answer
	}, nil)
	expect(t, acquire(t, client(t, nil, large), notRenewed).FencingToken() == 1<<64-1, "a token of 64 bits")
}

func TestAcquireEndsWithItsWait(t *testing.T) {
	fake := newFake(t, func(string, int) reply { return problem(423, "resource-locked", `"max_wait_ms": 0`) }, nil)
	_, err := client(t, nil, fake).Acquire(background(t), "a", fencegate.LeaseOptions{Wait: 100 * time.Millisecond})
	expect(t, errors.Is(err, fencegate.ErrResourceLocked) && fake.Count(acquisition) > 1, "%v %v", err, fake.calls)
}

func TestAcquireThatIsGivenUpIsCancelledByItsKey(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	fake := newFake(t, func(call string, before int) reply {
		if call == cancellation && before == 0 {
			return problem(503, "no-quorum").after(1)
		}
		if call == cancellation {
			return released
		}
		close(arrived)
		<-release
		return noAnswer
	}, nil)
	ctx, cancel := context.WithCancel(background(t))
	go func() {
		<-arrived
		cancel()
	}()
	_, err := client(t, nil, fake).Acquire(ctx, "a", fencegate.LeaseOptions{Owner: "o"})
	expect(t, errors.Is(err, context.Canceled), "%v", err)
	expect(t, fake.Count(cancellation) == 2, "%v", fake.calls)
	expect(t, fake.keys[0] == fake.keys[1] && fake.bodies[0] == fake.bodies[1], "%v %v", fake.keys, fake.bodies)
}

func TestAcquireUnderAContextThatHasEndedSendsNothing(t *testing.T) {
	fake := newFake(t, func(string, int) reply { return released }, nil)
	ctx, cancel := context.WithCancel(background(t))
	cancel()
	_, err := client(t, nil, fake).Acquire(ctx, "a", notRenewed)
	expect(t, errors.Is(err, context.Canceled) && len(fake.calls) == 0, "%v %v", err, fake.calls)
}

func TestTokenFunctionThatBlocksDoesNotDelayTheLoss(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	block := make(chan struct{})
	defer close(block)
	fake := newFake(t, keeper(granted(1500, 1500), nil), nil)
	made := client(t, func(options *fencegate.Options) {
		options.CredentialFunc = func(context.Context) (string, error) {
			if asked.Add(1) > 1 {
				<-block
			}
			return "key", nil
		}
	}, fake)
	lease, err := made.Acquire(background(t), "a", fencegate.LeaseOptions{})
	must(t, err)
	await(t, "it is lost", lease.Done())
	expectError[*fencegate.LeaseLostError](t, lease.Check())
}

func TestRenewByTheCallerExtendsTheLease(t *testing.T) {
	fake := newFake(t, keeper(granted(30_000, 30_000), func(_ string, before int) reply {
		if before == 0 {
			return granted(60_000, 60_000)
		}
		return problem(410, "lease-lost")
	}), nil)
	lease := acquire(t, client(t, nil, fake), notRenewed)
	must(t, lease.Renew(background(t)))
	expect(t, lease.Remaining() > 30*time.Second, "%v", lease.Remaining())
	expectError[*fencegate.LeaseLostError](t, lease.Renew(background(t)))
	expectError[*fencegate.LeaseLostError](t, lease.Release(background(t)))
	expect(t, fake.Count(release) == 0, "%v", fake.calls)
}

func TestSecondReleaseWaitsForTheFirst(t *testing.T) {
	answer := make(chan struct{})
	fake := newFake(t, func(call string, before int) reply {
		if call != release {
			return granted(60_000, 60_000)
		}
		<-answer
		return problem(403, "forbidden")
	}, nil)
	lease := acquire(t, client(t, nil, fake), notRenewed)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- lease.Release(background(t)) }()
	await(t, "the first has begun", lease.Done())
	go func() { second <- lease.Release(background(t)) }()
	select {
	case err := <-second:
		t.Fatalf("the second ended before the first: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(answer)
	outcome := <-first
	expect(t, outcome != nil && <-second == outcome, "%v", outcome)
}

func TestReleaseWithALostAnswerIsNoError(t *testing.T) {
	t.Parallel()
	for _, first := range []reply{noAnswer, problem(503, "no-quorum").after(1), {status: 502}} {
		first := first
		fake := newFake(t, func(call string, before int) reply {
			if call == acquisition {
				return granted(60_000, 60_000)
			}
			if before == 0 {
				return first
			}
			return problem(410, "lease-lost")
		}, nil)
		must(t, acquire(t, client(t, nil, fake), notRenewed).Release(background(t)))
	}
}

func TestReleaseThatIsRefusedOrOnlyAProxyAnsweredFails(t *testing.T) {
	for _, answer := range []reply{problem(410, "lease-lost"), problem(403, "forbidden"), {status: 200, body: `{}`}} {
		answer := answer
		fake := newFake(t, func(call string, _ int) reply {
			if call == acquisition {
				return granted(60_000, 60_000)
			}
			return answer
		}, nil)
		lease := acquire(t, client(t, nil, fake), notRenewed)
		err := lease.Release(background(t))
		expect(t, err != nil && lease.Release(background(t)) == err, "%v", err)
	}
}

func TestReleaseThatDoesNotSealFails(t *testing.T) {
	fake := newFake(t, func(call string, _ int) reply {
		if call == acquisition {
			return granted(60_000, 60_000)
		}
		return reply{status: 200, body: `{"hold_count": 0, "sealed": false}`}
	}, nil)
	made := client(t, nil, fake)
	err := made.WithLease(background(t), "a", fencegate.LeaseOptions{Seal: true}, doNothing)
	expect(t, err != nil && strings.Contains(err.Error(), "not sealed"), "%v", err)
	must(t, made.WithLease(background(t), "a", fencegate.LeaseOptions{}, doNothing))
}

func TestWithLeaseReturnsTheErrorOfTheFunction(t *testing.T) {
	fake := newFake(t, func(call string, _ int) reply {
		if call == acquisition {
			return granted(60_000, 60_000)
		}
		return problem(403, "forbidden")
	}, nil)
	failed := errors.New("of the function")
	made := client(t, nil, fake)
	for _, expected := range []error{failed, nil} {
		work := func(context.Context, *fencegate.Lease) error { return expected }
		err := made.WithLease(background(t), "a", fencegate.LeaseOptions{}, work)
		expect(t, err == expected, "a release that fails is not returned: %v", err)
	}
	expect(t, fake.Count(release) == 2, "%v", fake.calls)
}

func TestWithLeaseReleasesAfterTheEndOfItsContextAndAPanic(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 60_000), nil), nil)
	made := client(t, nil, fake)
	ctx, cancel := context.WithCancel(background(t))
	err := made.WithLease(ctx, "a", fencegate.LeaseOptions{}, func(ctx context.Context, lease *fencegate.Lease) error {
		cancel()
		<-ctx.Done()
		must(t, lease.Check())
		return ctx.Err()
	})
	expect(t, errors.Is(err, context.Canceled) && fake.Count(release) == 1, "%v", err)
	func() {
		defer func() { _ = recover() }()
		work := func(context.Context, *fencegate.Lease) error { panic("of the test") }
		_ = made.WithLease(background(t), "a", fencegate.LeaseOptions{}, work)
	}()
	expect(t, fake.Count(release) == 2, "%v", fake.calls)
}

func TestWithLeaseEndsTheContextOfTheFunctionAtALoss(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 60_000), func(string, int) reply { return problem(410, "lease-lost") }),
		func(w http.ResponseWriter, r *http.Request, _ int) { stream(w, "event: lost\ndata: {}\n\n") })
	made := client(t, nil, fake)
	for _, own := range []error{nil, errors.New("of the function")} {
		work := func(ctx context.Context, lease *fencegate.Lease) error {
			await(t, "the context ends", ctx.Done())
			expectError[*fencegate.LeaseLostError](t, lease.Check())
			if own != nil {
				return own
			}
			return ctx.Err()
		}
		err := made.WithLease(background(t), "a", fencegate.LeaseOptions{}, work)
		if own != nil {
			expect(t, err == own, "%v", err)
			continue
		}
		expectError[*fencegate.LeaseLostError](t, err)
	}
}

func TestLeaseOfAnotherProcessIsAdopted(t *testing.T) {
	made, sku := article(t)
	options := ttl(5 * time.Second)
	options.NotRenewed = true
	first := hold(t, made, sku, options)
	adopted, err := made.Adopt(background(t), first.LeaseID(), ttl(20*time.Second))
	must(t, err)
	expect(t, adopted.Remaining() > 10*time.Second && adopted.FencingToken() == first.FencingToken(), "%v", adopted)
	must(t, adopted.Release(background(t)))
	_, err = made.Adopt(background(t), first.LeaseID(), fencegate.LeaseOptions{})
	expectError[*fencegate.LeaseLostError](t, err)
}
