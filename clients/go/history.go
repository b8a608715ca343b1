package fencegate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Event is an event of the history. A text is empty, and a token zero, where the event concerns none.
type Event struct {
	// ID is the order in which events were stored.
	ID int64 `json:"id"`
	// At is when it happened.
	At time.Time `json:"at"`
	// Event is its type, for example write_applied.
	Event            string `json:"event"`
	Resource         string `json:"resource"`
	FencingToken     uint64 `json:"fencing_token"`
	LastFencingToken uint64 `json:"last_fencing_token"`
	Owner            string `json:"owner"`
	Principal        string `json:"principal"`
	WriteID          string `json:"write_id"`
	TraceID          string `json:"trace_id"`
	// Detail depends on the type; numbers are json.Number.
	Detail map[string]any `json:"detail"`
}

// Events are the events of the history that match filters, read page by page:
//
//	events := client.History(url.Values{"resource": {"inventory/sku-1"}, "order": {"asc"}})
//	for events.Next(ctx) {
//		fmt.Println(events.Event().Event)
//	}
//	err := events.Err()
type Events struct {
	client  *Client
	filters url.Values
	page    []Event
	at      int
	cursor  string
	isRead  bool // whether there is no further page
	err     error
}

type historyPage struct {
	Items      []Event `json:"items"`
	NextCursor string  `json:"next_cursor"`
}

// History returns the events that match filters, which are the parameters of GET /v1/history; limit is the size of a
// page.
func (client *Client) History(filters url.Values) *Events {
	return &Events{client: client, filters: filters, at: -1}
}

// Next prepares the next event. It returns false at the end and after an error, which Err returns.
func (events *Events) Next(ctx context.Context) bool {
	if events.at+1 < len(events.page) {
		events.at++
		return true
	}
	for !events.isRead && events.err == nil {
		events.read(ctx)
		if len(events.page) > 0 {
			return true
		}
	}
	return false
}

// read replaces the page by the next one.
func (events *Events) read(ctx context.Context) {
	query := url.Values{}
	for name, values := range events.filters {
		query[name] = values
	}
	if events.cursor != "" {
		query.Set("cursor", events.cursor)
	}
	client := events.client
	call := request{method: http.MethodGet, path: "/v1/history?" + query.Encode(), timeout: client.requestTimeout}
	page, err := client.historyPage(ctx, call, client.repeatUntil(0))
	events.page, events.at, events.err = page.Items, 0, err
	events.cursor = page.NextCursor
	events.isRead = events.cursor == ""
}

// Event returns the event that Next has prepared.
func (events *Events) Event() Event { return events.page[events.at] }

// Err returns the error that ended Next.
func (events *Events) Err() error { return events.err }

// historyPage returns a page; an answer that is not that of a gateway is an error.
func (client *Client) historyPage(ctx context.Context, call request, until time.Time) (historyPage, error) {
	answered, err := client.call(ctx, call, until, &attempts{})
	if err != nil {
		return historyPage{}, err
	}
	var page historyPage
	if err := answered.decode(&page); err != nil {
		return historyPage{}, err
	}
	if page.Items == nil {
		return historyPage{}, answered.unexpected("it is no page of the history")
	}
	return page, nil
}

// Follow calls the function with each new event of the history that matches filters, once and in the order of ID, also
// across broken connections and at another gateway, until the function returns an error, the context ends, or a gateway
// refuses the stream; it returns that error. It begins after the event with the ID after: "0" for the oldest one, ""
// for the next new one, "CELL~ID" in a cell other than 0.
func (client *Client) Follow(ctx context.Context, filters url.Values, after string,
	function func(event Event) error) error {
	call := request{method: http.MethodGet, path: "/v1/history/stream?" + filters.Encode()}
	for untrusted := 0; ; {
		gateway := int(client.current.Load())
		failed := client.stream(ctx, call, gateway, after, func(response *http.Response, received func()) *failure {
			untrusted = 0
			if isStream(response) {
				return client.readEvents(response.Body, received, &after, function)
			}
			body, err := io.ReadAll(io.LimitReader(response.Body, client.answerBytesMax))
			if err != nil || response.StatusCode < http.StatusMultipleChoices {
				return &failure{isRepeatable: true} // the answer of a proxy
			}
			_, failed := readAnswer(response, body, time.Now(), &attempts{})
			return failed
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause := watchPauseFirst/2 + randomBelow(watchPauseFirst)
		var problem *Problem
		if failed.pause == never {
			untrusted++
		} else {
			pause += failed.pause
		}
		isTemporary := failed.isRepeatable || errors.As(failed.err, &problem) && problem.Status >= 500
		if !isTemporary || untrusted == len(client.gateways) {
			return failed.err
		}
		client.leave(gateway)
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// readEvents reads a stream to its end, and keeps the position in after. The failure is that of the function, or
// repeatable.
func (client *Client) readEvents(stream io.Reader, received func(), after *string,
	function func(event Event) error) *failure {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, int(client.answerBytesMax))
	position, data := *after, ""
	for lines.Scan() {
		received()
		text := lines.Text()
		switch {
		case strings.HasPrefix(text, "id: "):
			position = strings.TrimPrefix(text, "id: ")
		case strings.HasPrefix(text, "data: "):
			data = strings.TrimPrefix(text, "data: ")
		case text == "" && data != "":
			var event Event
			if err := decode([]byte(data), &event); err != nil {
				return &failure{err: err}
			}
			*after, data = position, ""
			if err := function(event); err != nil {
				return &failure{err: err}
			}
		case text == "":
			*after = position
		}
	}
	if lines.Err() == bufio.ErrTooLong {
		return &failure{err: fmt.Errorf("fencegate: a line of the stream is larger than %d bytes", client.answerBytesMax)}
	}
	return &failure{err: lines.Err(), isRepeatable: true}
}
