package fencegatetest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencegate"
)

func get(ctx context.Context, client *fencegate.Client) error {
	var result any
	return client.Get(ctx, "/v1/nodes", nil, nil, &result)
}

func TestCallWithoutRepeatsIsMadeOnce(t *testing.T) {
	fake := newFake(t, func(string, int) reply { return noAnswer }, nil)
	expect(t, get(background(t), client(t, retryFor(-1), fake)) != nil && fake.Count("GET /v1/nodes") == 1,
		"%v", fake.calls)
}

func TestRetryAfterOfOneGatewayDoesNotDelayAnother(t *testing.T) {
	t.Parallel()
	first := newFake(t, func(_ string, before int) reply {
		if before == 0 {
			return problem(503, "no-quorum").after(1)
		}
		return reply{status: 200, body: `{}`}
	}, nil)
	second := newFake(t, func(string, int) reply { return problem(503, "storage-unavailable").after(30) }, nil)
	began := time.Now()
	must(t, get(background(t), client(t, nil, first, second)))
	expect(t, time.Since(began) >= time.Second, "Retry-After was not waited for")
	expect(t, first.Count("GET /v1/nodes") == 2 && second.Count("GET /v1/nodes") == 1,
		"%v %v", first.calls, second.calls)
}

func TestCallEndsWithItsContext(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	fake := newFake(t, func(string, int) reply {
		close(arrived)
		<-release
		return noAnswer
	}, nil)
	ctx, cancel := context.WithCancel(background(t))
	go func() {
		<-arrived
		cancel()
	}()
	err := get(ctx, client(t, nil, fake))
	expect(t, errors.Is(err, context.Canceled), "%v", err)
}

func TestOwnTimeLimitIsNotThatOfTheContext(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	fake := newFake(t, func(string, int) reply {
		<-release
		return noAnswer
	}, nil)
	made := client(t, func(options *fencegate.Options) {
		options.RequestTimeout, options.RetryFor = 50*time.Millisecond, 200*time.Millisecond
	}, fake)
	err := get(background(t), made)
	expectError[*fencegate.UnavailableError](t, err)
	expect(t, !errors.Is(err, context.DeadlineExceeded), "%v", err)
}

func TestTokenFunctionIsAskedForEachRequestAndNotShown(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	fake := newFake(t, func(string, int) reply { return problem(503, "overloaded").after(1) }, nil)
	made := client(t, func(options *fencegate.Options) {
		options.CredentialFunc = func(context.Context) (string, error) {
			if asked.Add(1) == 1 {
				return "first", nil
			}
			return "secret\n", nil
		}
	}, fake)
	err := get(background(t), made)
	expect(t, err != nil && !strings.Contains(err.Error(), "secret") && asked.Load() == 2, "%v", err)
}

func TestOptionsThatCannotBeUsedAreRefused(t *testing.T) {
	for _, options := range []fencegate.Options{
		{}, {URLs: []string{"ftp://a"}}, {URLs: []string{"http://"}}, {URLs: []string{"http://user:secret@a"}},
		{URLs: []string{"http://a/?secret"}}, {URLs: []string{"http://a"}, Credential: "secret\n"},
		{URLs: []string{"http://a"}, Cell: "65536"}, {URLs: []string{"http://a"}, RequestTimeout: -1},
	} {
		_, err := fencegate.New(options)
		expect(t, err != nil && !strings.Contains(err.Error(), "secret"), "%+v: %v", options, err)
	}
}

func TestHeadersAreThoseOfTheContract(t *testing.T) {
	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		_, _ = io.WriteString(w, `{"number": 12345678901234567890.5}`)
	}))
	defer server.Close()
	made, err := fencegate.New(fencegate.Options{URLs: []string{server.URL + "/"}, Credential: "key", Cell: "0"})
	must(t, err)
	var result map[string]any
	must(t, made.Get(background(t), "/v1/tables/t", url.Values{"id": {"eq.1"}}, nil, &result))
	sent := <-headers
	expect(t, sent.Get("Authorization") == "Bearer key" && sent.Get("Fencing-Cell") == "0", "%v", sent)
	expect(t, sent.Get("Accept-Encoding") == "identity", "%v", sent)
	expect(t, result["number"] == json.Number("12345678901234567890.5"), "%v", result)
}

func TestAnswerAboveSizeLimitIsRefused(t *testing.T) {
	fake := newFake(t, func(string, int) reply {
		return reply{status: 200, body: `{"text": "` + strings.Repeat("x", 2000) + `"}`}
	}, nil)
	err := get(background(t), client(t, func(options *fencegate.Options) { options.AnswerBytesMax = 1000 }, fake))
	expect(t, err != nil && strings.Contains(err.Error(), "1000") && len(fake.calls) == 1, "%v", err)
}

func TestErrorsDoNotShowTheLeaseID(t *testing.T) {
	fake := newFake(t, func(call string, _ int) reply {
		if call == acquisition {
			answer := granted(60_000, 60_000)
			answer.body = strings.Replace(answer.body, `"L"`, `"secret"`, 1)
			return answer
		}
		return noAnswer
	}, nil)
	lease, err := client(t, retryFor(200*time.Millisecond), fake).Acquire(background(t), "a", notRenewed)
	must(t, err)
	expect(t, !strings.Contains(lease.String(), "secret"), "%v", lease)
	ctx, cancel := context.WithTimeout(background(t), 300*time.Millisecond)
	defer cancel()
	for _, err := range []error{lease.Renew(ctx), lease.Release(ctx)} {
		expect(t, err != nil && !strings.Contains(err.Error(), "secret"), "%v", err)
	}
}

func TestGatewayThatIsNotTrustedIsFinalAndNotSent(t *testing.T) {
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	defer stranger.Close()
	untrusted, err := fencegate.New(fencegate.Options{URLs: []string{stranger.URL}})
	must(t, err)
	_, err = untrusted.OneShotWrite(background(t), []string{"a"}, fencegate.OneShotOptions{}, fencegate.Call("f"))
	expectError[*fencegate.UnavailableError](t, err)

	other := newFake(t, func(string, int) reply { return applied }, nil)
	both, err := fencegate.New(fencegate.Options{URLs: []string{stranger.URL, other.URL}})
	must(t, err)
	_, err = both.OneShotWrite(background(t), []string{"a"}, fencegate.OneShotOptions{}, fencegate.Call("f"))
	must(t, err)
}

func TestHTTPClientOfTheCallerIsUsed(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{}`)
	}))
	defer server.Close()
	made, err := fencegate.New(fencegate.Options{URLs: []string{server.URL}, HTTPClient: server.Client()})
	must(t, err)
	must(t, get(background(t), made))
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	made, err = fencegate.New(fencegate.Options{URLs: []string{server.URL}, TLS: trusting})
	must(t, err)
	must(t, get(background(t), made))
}

func TestProblemNamesItsFaultsAndMembers(t *testing.T) {
	fake := newFake(t, func(string, int) reply {
		return problem(400, "invalid-request", `"errors": [{"pointer": "/ttl_ms", "detail": "too short"}]`,
			`"remaining_ms": 9007199254740993`)
	}, nil)
	found := expectProblem(t, get(background(t), client(t, nil, fake)), "invalid-request")
	expect(t, found.Faults[0] == fencegate.Fault{Pointer: "/ttl_ms", Detail: "too short"}, "%v", found.Faults)
	expect(t, found.Members["remaining_ms"] == json.Number("9007199254740993"), "%v", found.Members)
}

func TestHistoryIsReadByPages(t *testing.T) {
	fake := newFake(t, func(_ string, before int) reply {
		switch before {
		case 0:
			return reply{status: 200, body: `{"items": [{"id": 1, "at": "2026-11-21T10:00:00.123Z", "event": "lease_granted",
				"fencing_token": 9007199254740991, "detail": null}], "next_cursor": "c"}`}
		case 1:
			return reply{status: 200, body: `{"next_cursor": null,
				"items": [{"id": 2, "at": "2026-11-21T10:00:01Z", "event": "write_applied"}]}`}
		}
		return reply{status: 200, body: `{"maintenance": true}`}
	}, nil)
	made := client(t, nil, fake)
	events := made.History(url.Values{"resource": {"a"}})
	var found []int64
	for events.Next(background(t)) {
		found = append(found, events.Event().ID)
		expect(t, events.Event().ID != 1 || events.Event().FencingToken == 9007199254740991, "%+v", events.Event())
	}
	must(t, events.Err())
	expect(t, len(found) == 2 && found[0] == 1 && found[1] == 2 && !events.Next(background(t)), "%v", found)
	events = made.History(nil)
	expect(t, !events.Next(background(t)) && events.Err() != nil, "a page of a proxy: %v", events.Err())
}
