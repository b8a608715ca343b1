// Package fencegate is the client of fencegate: leases with fencing tokens that renew themselves, guarded writes that
// take effect once, and transactions of the caller's own connection under a lease.
//
//	client, err := fencegate.New(fencegate.Options{URLs: []string{"http://localhost:8080"}})
//	…
//	sale := fencegate.Update("inventory").Where("sku", "sku-1").Add("stock", -1).ExpectRows(1)
//	err = client.WithLease(ctx, "inventory/sku-1", fencegate.LeaseOptions{},
//		func(ctx context.Context, lease *fencegate.Lease) error {
//			_, err := lease.Write(ctx, sale)
//			return err
//		})
//
// A call is repeated while its failure is temporary and a repeat has no second effect, at the next gateway if there are
// several; it ends with its context at the latest.
package fencegate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	defaultRequestTimeout = 15 * time.Second
	defaultRetryFor       = 30 * time.Second
	defaultAnswerBytesMax = 16 << 20
	connectTimeout        = 2 * time.Second
	idleConnectionsMax    = 32
	idleTimeMax           = 30 * time.Second
)

// Options are the settings of a client. URLs is required; the zero value of any other field is its default.
type Options struct {
	// URLs are the addresses of the gateways of one cluster, such as http://localhost:8080. Of several the next one is
	// used after a failure.
	URLs []string
	// Credential is an API key or a JSON Web Token. Empty: none is sent.
	Credential string
	// CredentialFunc returns the current credential before each request, in place of Credential. A
	// call fails with its error; a renewal is tried again.
	CredentialFunc func(ctx context.Context) (string, error)
	// TLS has the authorities of the gateways' certificates (RootCAs) and the client's own certificate. nil: those of
	// the system, and none.
	TLS *tls.Config
	// HTTPClient makes the requests in place of a client with the setting TLS. Its Timeout and CheckRedirect are not
	// used.
	HTTPClient *http.Client
	// Cell is the cell for which all requests are, "0" to "65535"; empty: none is named. A gateway of another cell
	// refuses them. A proxy before several cells needs it for what names no resource, such as the look-up of a write.
	Cell string
	// RequestTimeout limits one attempt of a call, beside the time for which the gateway waits for a resource. 15 s if
	// zero.
	RequestTimeout time.Duration
	// RetryFor is how long a call is repeated, beside its wait for a resource. 30 s if zero; negative: never.
	RetryFor time.Duration
	// AnswerBytesMax is the size of the largest answer that is read. 16 MiB if zero.
	AnswerBytesMax int64
	// Logf is called with failures that no caller gets: a lease that was not released by WithLease, or a request that
	// was given up and not cancelled, both of which end with their ttl. nil: they are not logged.
	Logf func(format string, arguments ...any)
}

// Client calls the gateways of one cluster. It is safe for use by several goroutines, and one is enough for a program.
type Client struct {
	http           *http.Client
	gateways       []string
	credential     func(ctx context.Context) (string, error)
	cell           string
	requestTimeout time.Duration
	retryFor       time.Duration
	answerBytesMax int64
	logf           func(format string, arguments ...any)

	// The gateway in memory in place of real ones; nil: none.
	test *TestGateway
	// The index of the gateway at which calls begin.
	current atomic.Int32
	// The gateway's lease.max_wait_ms, from its latest answer to a call that found the resource locked. Until then a
	// call does not wait.
	maxWaitMs atomic.Int64
}

// visible matches what can be sent as a credential.
var visible = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?$`)

var errCredential = errors.New("fencegate: a credential consists of printable ASCII characters")

// New makes a client. It connects with the first call. The error names an option that cannot be used, and shows no
// secret.
func New(options Options) (*Client, error) {
	if len(options.URLs) == 0 {
		return nil, errors.New("fencegate: URLs has to name at least one gateway")
	}
	client := &Client{
		http:           httpClient(options),
		credential:     options.CredentialFunc,
		cell:           options.Cell,
		requestTimeout: defaultRequestTimeout,
		retryFor:       defaultRetryFor,
		answerBytesMax: defaultAnswerBytesMax,
		logf:           options.Logf,
	}
	for _, text := range options.URLs {
		parsed, err := url.Parse(text)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" ||
			parsed.User != nil || strings.ContainsAny(text, "?#") {
			return nil, errors.New("fencegate: URLs has to have http://HOST:PORT or https://HOST:PORT")
		}
		client.gateways = append(client.gateways, strings.TrimRight(text, "/"))
	}
	if options.Cell != "" {
		if _, err := strconv.ParseUint(options.Cell, 10, 16); err != nil {
			return nil, errors.New("fencegate: Cell has to be from 0 to 65535")
		}
	}
	if client.credential == nil {
		key := options.Credential
		if key != "" && !visible.MatchString(key) {
			return nil, errCredential
		}
		client.credential = func(context.Context) (string, error) { return key, nil }
	}
	if options.RequestTimeout < 0 || options.AnswerBytesMax < 0 {
		return nil, errors.New("fencegate: RequestTimeout and AnswerBytesMax cannot be negative")
	}
	if options.RequestTimeout > 0 {
		client.requestTimeout = options.RequestTimeout
	}
	if options.RetryFor != 0 {
		client.retryFor = options.RetryFor
	}
	if options.AnswerBytesMax > 0 {
		client.answerBytesMax = options.AnswerBytesMax
	}
	if client.logf == nil {
		client.logf = func(string, ...any) {}
	}
	return client, nil
}

// httpClient returns a client that follows no redirect and has no time limit of its own.
func httpClient(options Options) *http.Client {
	var client http.Client
	if options.HTTPClient != nil {
		client = *options.HTTPClient
	} else {
		client.Transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSClientConfig:     options.TLS.Clone(),
			TLSHandshakeTimeout: connectTimeout,
			MaxIdleConnsPerHost: idleConnectionsMax,
			IdleConnTimeout:     idleTimeMax,
		}
	}
	client.Timeout = 0
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// Get reads anything of the HTTP contract that is JSON, such as /v1/tables/inventory or /v1/resource, into what result
// points to; numbers in values of the type any become json.Number. With a lease, which may be nil, it is a fenced read:
// from then on older holders cannot write.
func (client *Client) Get(ctx context.Context, path string, query url.Values, lease *Lease, result any) error {
	call := request{method: http.MethodGet, path: path, timeout: client.requestTimeout}
	if len(query) > 0 {
		call.path += "?" + query.Encode()
	}
	if lease != nil {
		if err := lease.Check(); err != nil {
			return err
		}
		call.lease = lease.id
	}
	answered, err := client.call(ctx, call, client.repeatUntil(0), &attempts{})
	if err != nil {
		if lease != nil {
			lease.loseAfter(err)
		}
		return err
	}
	return answered.decode(result)
}

// now returns the time, by which a test can move the client.
func (client *Client) now() time.Time {
	if client.test != nil {
		return client.test.now()
	}
	return time.Now()
}

// sleep waits; it returns the error of a context that ends meanwhile.
func (client *Client) sleep(ctx context.Context, duration time.Duration) error {
	if client.test != nil {
		client.test.Advance(duration)
		duration = time.Millisecond // for other goroutines
	}
	return sleep(ctx, duration)
}

// repeatUntil returns when the repeats of a call end that begins now and may wait for so long.
func (client *Client) repeatUntil(wait time.Duration) time.Time {
	return client.now().Add(wait + max(client.retryFor, 0))
}

func max[T time.Duration | int64](one, other T) T {
	if one > other {
		return one
	}
	return other
}

func min[T time.Duration | int64](one, other T) T {
	if one < other {
		return one
	}
	return other
}

// milliseconds rounds up, so that a short time does not become none.
func milliseconds(duration time.Duration) int64 {
	return int64((duration + time.Millisecond - 1) / time.Millisecond)
}
