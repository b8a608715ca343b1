package fencegate

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	backoffFirst  = 50 * time.Millisecond
	backoffMax    = 2 * time.Second
	doublingsMax  = 10
	retryAfterMax = time.Hour // a larger value of the header is read as this
	// The pause before a repeat at a gateway whose certificate is not trusted: longer than any call.
	never = 10 * 365 * 24 * time.Hour
)

// request is a call of the HTTP contract. Each is safe to repeat: it reads, or names a lease, or has an idempotency
// key.
type request struct {
	method, path string
	body         any
	key          string        // Idempotency-Key; empty: none
	lease        string        // Fencing-Lease; empty: none
	timeout      time.Duration // of one attempt
	end          time.Time     // of the last attempt; zero: an attempt may end after the time of the repeats
}

// attempts is what is known of the attempts of a call.
type attempts struct {
	sent        bool   // whether one may have reached a gateway
	unanswered  bool   // whether one may have taken effect and was not answered by a gateway
	unavailable bool   // whether one was answered 503: a gateway goes on with a release then
	writeID     string // the latest one of an attempt that may have been executed
}

// answer is one with success. sentAt is the time before the attempt that was answered.
type answer struct {
	status   int
	body     []byte
	sentAt   time.Time
	replayed bool
}

// decode reads the answer; numbers in values of the type any become json.Number. A proxy may answer any request with
// success, so a text that is not JSON, or has other types, is an UnavailableError.
func (answered *answer) decode(result any) error {
	if err := decode(answered.body, result); err != nil {
		return answered.unexpected(err.Error())
	}
	return nil
}

// unexpected returns the error for an answer that no gateway gives.
func (answered *answer) unexpected(reason string) error {
	return &UnavailableError{fmt.Errorf("the answer %d is not from a gateway: %s", answered.status, reason)}
}

func decode(text []byte, result any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(result); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("text follows the JSON")
	}
	return nil
}

// failure is what an attempt led to, if not to an answer.
type failure struct {
	err          error
	isRepeatable bool
	pause        time.Duration // the least time until a repeat at the same gateway
	sent         bool          // whether a gateway may have the request, without having answered it
}

// call makes a call, and repeats it if that may help. No repeat begins after until.
func (client *Client) call(ctx context.Context, call request, until time.Time, tries *attempts) (*answer, error) {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return nil, fmt.Errorf("fencegate: a value cannot be sent: %w", err)
		}
	}
	notBefore := make([]time.Time, len(client.gateways))
	gateway := int(client.current.Load())
	for attempt := 0; ; attempt++ {
		answered, failed := client.attempt(ctx, call, body, client.gateways[gateway], tries)
		if failed == nil {
			return answered, nil
		}
		tries.unanswered = tries.unanswered || failed.sent
		if !failed.isRepeatable {
			return nil, failed.err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("fencegate: %s: %w", withoutID(call.path), ctx.Err())
		}
		now := client.now()
		notBefore[gateway] = now.Add(failed.pause)
		if as[*UnavailableError](failed.err) { // another gateway may be able to serve the call
			next := earliestAfter(gateway, notBefore)
			client.current.CompareAndSwap(int32(gateway), int32(next))
			gateway = next
		}
		pause := backoff(attempt) + max(notBefore[gateway].Sub(now), 0)
		if !now.Add(pause).Before(until) {
			return nil, failed.err
		}
		if err := client.sleep(ctx, pause); err != nil {
			return nil, fmt.Errorf("fencegate: %s: %w", withoutID(call.path), err)
		}
	}
}

// withoutID returns a path without the lease_id in it, which is a secret, and without its query.
func withoutID(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if rest := strings.TrimPrefix(path, leasesPath+"/"); rest != path && rest != "cancel" {
		return leasesPath + "/…"
	}
	return path
}

// attempt makes a call once.
func (client *Client) attempt(ctx context.Context, call request, body []byte, gateway string,
	tries *attempts) (*answer, *failure) {
	if err := ctx.Err(); err != nil {
		return nil, &failure{err: err, isRepeatable: true}
	}
	sentAt := client.now()
	timeout := call.timeout
	if !call.end.IsZero() {
		timeout = min(timeout, call.end.Sub(sentAt))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	made, err := client.newRequest(ctx, call, body, gateway)
	if err != nil {
		return nil, &failure{err: err}
	}
	if ctx.Err() != nil {
		return nil, &failure{err: &UnavailableError{errors.New("no time was left")}, isRepeatable: true}
	}
	response, err := client.http.Do(made.request)
	var content []byte
	if err == nil {
		defer response.Body.Close()
		content, err = io.ReadAll(io.LimitReader(response.Body, client.answerBytesMax+1))
	}
	tries.sent = tries.sent || made.mayBeSent()
	if err != nil {
		return nil, failureOf(err, made.mayBeSent())
	}
	if int64(len(content)) > client.answerBytesMax {
		err := fmt.Errorf("fencegate: the answer is larger than %d bytes", client.answerBytesMax)
		return nil, &failure{err: err, sent: true}
	}
	return readAnswer(response, content, sentAt, tries)
}

// outgoing is a request, and whether a connection for it was asked for and found.
type outgoing struct {
	request       *http.Request
	asked, gotten atomic.Bool
}

// mayBeSent returns whether a gateway may have the request. A RoundTripper of the caller may not trace its connections.
func (made *outgoing) mayBeSent() bool { return made.gotten.Load() || !made.asked.Load() }

// newRequest returns a request with the headers that all requests have.
func (client *Client) newRequest(ctx context.Context, call request, body []byte, gateway string) (*outgoing, error) {
	credential, err := client.credential(ctx)
	if err == nil && credential != "" && !visible.MatchString(credential) {
		err = errCredential
	}
	if err != nil {
		return nil, fmt.Errorf("fencegate: the function CredentialFunc failed: %w", err)
	}
	made := &outgoing{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { made.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { made.gotten.Store(true) },
	})
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	if made.request, err = http.NewRequestWithContext(ctx, call.method, gateway+call.path, content); err != nil {
		return nil, errors.New("fencegate: the path is no path of a URL")
	}
	// net/http would repeat a call with an Idempotency-Key by itself, and nobody would learn that it was sent before.
	made.request.GetBody = nil
	headers := map[string]string{"Fencing-Cell": client.cell, "Idempotency-Key": call.key, "Fencing-Lease": call.lease}
	if credential != "" {
		headers["Authorization"] = "Bearer " + credential
	}
	if body != nil {
		headers["Content-Type"] = "application/json"
	}
	for name, value := range headers {
		if value != "" {
			made.request.Header.Set(name, value)
		}
	}
	// The size of a compressed answer would tell something of its content.
	made.request.Header.Set("Accept-Encoding", "identity")
	return made, nil
}

func failureOf(err error, sent bool) *failure {
	reason := &UnavailableError{fmt.Errorf("no answer: %v", withoutURL(err))}
	failed := &failure{err: reason, isRepeatable: true, sent: sent}
	if isUntrusted(err) {
		failed.pause, failed.sent = never, false
	}
	return failed
}

// withoutURL returns the cause of an error of net/http, whose text has the URL.
func withoutURL(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil || !strings.Contains(err.Error(), leasesPath) {
			return err
		}
		err = inner
	}
}

// isUntrusted returns whether the certificate of a gateway was refused.
func isUntrusted(err error) bool {
	return as[x509.UnknownAuthorityError](err) || as[x509.HostnameError](err) || as[x509.CertificateInvalidError](err)
}

// readAnswer returns the answer, or the failure that it says.
func readAnswer(response *http.Response, body []byte, sentAt time.Time, tries *attempts) (*answer, *failure) {
	status := response.StatusCode
	if status >= 200 && status < 300 {
		isReplayed := response.Header.Get("Idempotency-Replayed") == "true"
		answered := &answer{status: status, body: body, sentAt: sentAt, replayed: isReplayed}
		if len(body) > 0 && !json.Valid(body) {
			return nil, &failure{err: answered.unexpected("it is not JSON"), isRepeatable: true, sent: true}
		}
		return answered, nil
	}
	retryAfter := retryAfterOf(response.Header.Get("Retry-After"))
	problem := readProblem(response, body, retryAfter)
	if problem == nil {
		return nil, failureOfProxy(status, retryAfter)
	}
	tries.unavailable = tries.unavailable || status == http.StatusServiceUnavailable
	if problem.outcomeUnknown() {
		tries.unanswered = true
		if id := problem.writeID(); id != "" {
			tries.writeID = id
		}
	}
	return nil, &failure{err: errorOf(problem), isRepeatable: isRepeatable(problem), pause: max(retryAfter, 0)}
}

// readProblem returns nil if the answer is not a problem of a gateway.
func readProblem(response *http.Response, body []byte, retryAfter time.Duration) *Problem {
	var document struct {
		Type      string  `json:"type"`
		Title     string  `json:"title"`
		Detail    string  `json:"detail"`
		RequestID string  `json:"request_id"`
		Errors    []Fault `json:"errors"`
	}
	problem := &Problem{Status: response.StatusCode, RetryAfter: retryAfter}
	isProblem := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || decode(body, &document) != nil || decode(body, &problem.Members) != nil {
		return nil
	}
	problem.Slug = strings.TrimPrefix(document.Type, "/problems/")
	if problem.Slug == document.Type {
		return nil
	}
	problem.Title, problem.Detail = document.Title, document.Detail
	problem.RequestID, problem.Faults = document.RequestID, document.Errors
	return problem
}

// failureOfProxy returns the failure for the answer of something between the client and the gateway. A proxy answers
// 421 if it does not know the cell of the call. Its own errors, from 500 on, do not say whether a gateway has the call.
func failureOfProxy(status int, retryAfter time.Duration) *failure {
	detail := fmt.Sprintf("the answer %d is not from a gateway", status)
	if status == http.StatusMisdirectedRequest {
		return &failure{err: &Problem{Slug: slugMisdirected, Status: status, Detail: detail, RetryAfter: -1}}
	}
	isServerError := status >= http.StatusInternalServerError
	return &failure{
		err:          &UnavailableError{errors.New(detail)},
		isRepeatable: isServerError || status == http.StatusTooManyRequests,
		pause:        max(retryAfter, 0),
		sent:         isServerError,
	}
}

func isRepeatable(problem *Problem) bool {
	if problem.outcomeUnknown() {
		return false // the caller first finds out what became of it
	}
	switch problem.Status {
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return problem.RetryAfter >= 0
	}
	return false
}

// retryAfterOf reads Retry-After; negative if there is none. Its form with a date is what no gateway sends.
func retryAfterOf(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1
	}
	return min(time.Duration(seconds)*time.Second, retryAfterMax)
}

// earliestAfter returns the index of the gateway that may be asked first: of several, the next one after gateway.
func earliestAfter(gateway int, notBefore []time.Time) int {
	earliest := (gateway + 1) % len(notBefore)
	for step := 2; step <= len(notBefore); step++ {
		if other := (gateway + step) % len(notBefore); notBefore[other].Before(notBefore[earliest]) {
			earliest = other
		}
	}
	return earliest
}

// leave lets calls that begin at a gateway begin at the next one.
func (client *Client) leave(gateway int) {
	client.current.CompareAndSwap(int32(gateway), int32((gateway+1)%len(client.gateways)))
}

// backoff returns a random part of a time that doubles with each attempt ("full jitter").
func backoff(attempt int) time.Duration {
	if attempt > doublingsMax {
		attempt = doublingsMax
	}
	return randomBelow(min(backoffMax, backoffFirst<<attempt))
}

func randomBelow(limit time.Duration) time.Duration {
	return time.Duration(binary.BigEndian.Uint64(randomBytes()) % uint64(limit+1))
}

// newKey returns an idempotency key that no other call has.
func newKey() string {
	return hex.EncodeToString(randomBytes())
}

func randomBytes() []byte {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		panic("fencegate: the system has no random numbers: " + err.Error())
	}
	return bytes
}

// sleep waits; it returns the error of a context that ends meanwhile.
func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
