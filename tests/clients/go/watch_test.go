package fencegatetest

import (
	"errors"
	"net/http"
	"strings"
	"testing"

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

func TestFollowedEventsComeOnceAcrossBrokenStreams(t *testing.T) {
	positions := make(chan string, 10)
	fake := newFake(t, lost, func(w http.ResponseWriter, r *http.Request, before int) {
		positions <- r.URL.Path + " " + r.Header.Get("Last-Event-ID")
		switch before {
		case 0:
			stream(w, "id: 7\nevent: lease_granted\ndata: {\"id\": 7}\n\nid: 9\n\nid: 10\ndata: {\"id\"")
			panic(http.ErrAbortHandler)
		case 1:
			w.WriteHeader(503)
		case 2:
			stream(w, "id: 10\ndata: {\"id\": 10}\n\n")
			<-r.Context().Done()
		default:
			stop := problem(403, "forbidden")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(stop.status)
			_, _ = w.Write([]byte(stop.body))
		}
	})
	var ids []int64
	enough := errors.New("enough")
	follow := func() error {
		return client(t, nil, fake).Follow(background(t), nil, "0", func(event fencegate.Event) error {
			if ids = append(ids, event.ID); event.ID == 10 {
				return enough
			}
			return nil
		})
	}
	expect(t, follow() == enough && len(ids) == 2 && ids[0] == 7, "%v", ids)
	for _, position := range []string{"0", "9", "9"} {
		found := <-positions
		expect(t, found == "/v1/history/stream "+position, "%s, not %s", found, position)
	}
	expectProblem(t, follow(), "forbidden")
}
