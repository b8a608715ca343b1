package fencegate

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// A gateway sends something each 10 s: a stream that is silent for longer than this is broken.
	watchSilenceMax = 30 * time.Second
	// The pause before a further request; it doubles until a stream has begun, and is the longest after a limit.
	watchPauseFirst = 500 * time.Millisecond
	watchPauseMax   = 60 * time.Second
)

// watch follows the lease by a stream of events until it is over, and makes keep ask for its state at once if a gateway
// says that it has ended. A stream that broke, or that no gateway could open, is requested again after a pause. A
// refusal ends the watch, and does not concern the lease.
func (lease *Lease) watch() {
	pause := watchPauseFirst
	for {
		gateway := int(lease.client.current.Load())
		status, hasBegun, hasEnded := lease.follow(gateway)
		if lease.ctx.Err() != nil {
			return
		}
		isClientError := status >= http.StatusBadRequest && status < http.StatusInternalServerError
		if hasEnded || status == http.StatusGone {
			lease.ended <- struct{}{} // there is space: nothing else is ever sent
			return
		}
		if isClientError && status != http.StatusTooManyRequests {
			return
		}
		if !isClientError {
			lease.client.leave(gateway)
		}
		if hasBegun {
			pause = watchPauseFirst
		}
		next := pause
		// Success without a stream is the answer of a proxy, or of a gateway that cannot watch a lease.
		if status == http.StatusTooManyRequests || status == http.StatusOK && !hasBegun {
			next = watchPauseMax
		}
		pause = min(2*pause, watchPauseMax)
		if sleep(lease.ctx, next/2+randomBelow(next/2)) != nil {
			return
		}
	}
}

// follow reads one stream to its end. It returns the status of the answer, zero if there was none, whether a stream has
// begun, and whether the gateway says that the lease has ended.
func (lease *Lease) follow(gateway int) (status int, hasBegun, hasEnded bool) {
	call := request{method: http.MethodGet, path: lease.path()}
	lease.client.stream(lease.ctx, call, gateway, "", func(response *http.Response, received func()) *failure {
		status = response.StatusCode
		if hasBegun = isStream(response); hasBegun {
			hasEnded = readEnd(response.Body, received)
		}
		return nil
	})
	return status, hasBegun, hasEnded
}

// stream requests a stream of events, and calls the function with the answer; the function calls received for each part
// of the stream, which is ended if it is silent for too long.
func (client *Client) stream(ctx context.Context, call request, gateway int, position string,
	function func(response *http.Response, received func()) *failure) *failure {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(watchSilenceMax, cancel)
	defer silence.Stop()
	made, err := client.newRequest(ctx, call, nil, client.gateways[gateway])
	if err != nil {
		return &failure{err: err}
	}
	made.request.Header.Set("Accept", "text/event-stream")
	if position != "" {
		made.request.Header.Set("Last-Event-ID", position)
	}
	response, err := client.http.Do(made.request)
	if err != nil {
		return failureOf(err, false)
	}
	defer response.Body.Close()
	return function(response, func() { silence.Reset(watchSilenceMax) })
}

func isStream(response *http.Response) bool {
	return response.StatusCode == http.StatusOK &&
		strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
}

// readEnd reads events until one says that the lease has ended, whose name is enough, or until the stream ends. It
// calls received for each line, or part of a long one.
func readEnd(stream io.Reader, received func()) bool {
	lines := bufio.NewReader(stream)
	isContinued := false
	for {
		line, isPart, err := lines.ReadLine()
		if err != nil {
			return false
		}
		received()
		text := string(line)
		if !isContinued && !isPart && (text == "event: lost" || text == "event: released") {
			return true
		}
		isContinued = isPart
	}
}
