package fencegatetest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"fencegate"
)

func lost(string, int) reply { return problem(410, "lease-lost") }

func TestWatchReadsEventsInPartsAndAfterALongLine(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 60_000), lost), func(w http.ResponseWriter, r *http.Request, _ int) {
		stream(w, "event: held\r\ndata: "+strings.Repeat("x", 10_000)+"event: lost\n\n: event: lost\n\neve")
		stream(w, "nt: released\r\n")
		<-r.Context().Done()
	})
	lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{})
	await(t, "it is lost", lease.Done())
	expect(t, fake.Count(renewal) == 1, "%v", fake.calls)
}

func TestWatchOfALeaseThatIsNotRenewedAsksForItsState(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 60_000), lost), func(w http.ResponseWriter, r *http.Request, _ int) {
		w.WriteHeader(410)
	})
	lease := acquire(t, client(t, nil, fake), notRenewed)
	await(t, "it is lost", lease.Done())
	expect(t, fake.Count(inspection) == 1 && fake.Count(renewal) == 0, "%v", fake.calls)
}

func TestEndThatAGatewayDoesNotConfirmIsNoLoss(t *testing.T) {
	fake := newFake(t, keeper(granted(60_000, 30_000), func(string, int) reply { return granted(60_000, 60_000) }),
		func(w http.ResponseWriter, r *http.Request, _ int) { stream(w, "event: lost\n") })
	lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{})
	eventually(t, "it is renewed", func() bool { return lease.Remaining() > 30*time.Second })
	must(t, lease.Err())
}

func TestWatchThatIsRefusedIsNotRepeated(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{})
	fake := newFake(t, keeper(granted(60_000, 60_000), lost), func(w http.ResponseWriter, r *http.Request, before int) {
		w.WriteHeader(403)
		if before == 0 {
			close(refused)
		}
	})
	lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{})
	await(t, "the watch is refused", refused)
	time.Sleep(time.Second) // the pause before a repeat that is not to come
	must(t, lease.Err())
	fake.mu.Lock()
	defer fake.mu.Unlock()
	expect(t, fake.watches == 1, "%d watches", fake.watches)
}

func TestWatchThatBreaksGoesOnAtTheNextGateway(t *testing.T) {
	first := newFake(t, keeper(granted(60_000, 60_000), lost), func(w http.ResponseWriter, r *http.Request, _ int) {
		stream(w, "event: held\n")
		panic(http.ErrAbortHandler)
	})
	second := newFake(t, lost, func(w http.ResponseWriter, r *http.Request, _ int) { stream(w, "event: lost\n") })
	lease := acquire(t, client(t, nil, first, second), fencegate.LeaseOptions{})
	await(t, "it is lost", lease.Done())
	expect(t, second.Count(renewal) == 1, "%v %v", first.calls, second.calls)
}

func TestWatchIsClosedAtTheRelease(t *testing.T) {
	begun, closed := make(chan struct{}), make(chan struct{})
	fake := newFake(t, keeper(granted(60_000, 60_000), lost), func(w http.ResponseWriter, r *http.Request, _ int) {
		stream(w, "event: held\n")
		close(begun)
		<-r.Context().Done()
		close(closed)
	})
	lease := acquire(t, client(t, nil, fake), fencegate.LeaseOptions{})
	await(t, "it is watched", begun)
	must(t, lease.Release(background(t)))
	await(t, "the stream is closed", closed)
}
