package fencegate

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"
)

const everyMin = time.Second

// RunOncePerTick calls the function under a lease on the resource as WithLease does, once in each tick of a schedule
// with the period every, over all machines, as `fencegate lock --every` does. It returns whether it has called it here:
// not while another caller holds the resource, or if a start less than half of every ago is recorded. A recorded start
// counts, also if the function then fails. After another error of a gateway nothing was run.
//
// every is at least 1 s. If options.Wait is zero, the call does not wait; Owner, Also, AnyOf, Mode and Shared are not
// possible.
func (client *Client) RunOncePerTick(ctx context.Context, resource string, every time.Duration, options LeaseOptions,
	function func(ctx context.Context, lease *Lease) error) (bool, error) {
	if every < everyMin {
		return false, errors.New("fencegate: every has to be at least 1 s")
	}
	if options.Owner != "" || options.Mode != "" || len(options.Also)+len(options.AnyOf)+len(options.Shared) > 0 {
		return false, errors.New("fencegate: a tick cannot have Owner, Also, AnyOf, Mode or Shared")
	}
	options.FenceOnGrant = true
	lease, err := client.acquire(ctx, resource, options, options.Wait)
	if errors.Is(err, ErrResourceLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	isRun := false
	err = lease.use(ctx, options.Seal, func(ctx context.Context, lease *Lease) error {
		isFirst, err := client.beginTick(ctx, lease, every)
		if err == nil && isFirst {
			err = lease.Check()
		}
		if err != nil || !isFirst {
			return err
		}
		isRun = true
		return function(ctx, lease)
	})
	return isRun, err
}

// beginTick records that the work of a tick starts now, unless the last start belongs to the same tick. The starts are
// the events fence_raised of RESOURCE@tick, with the time of PostgreSQL. It returns whether this call has recorded the
// start: exactly one caller may do the work.
func (client *Client) beginTick(ctx context.Context, lease *Lease, every time.Duration) (bool, error) {
	resource := lease.resources[0]
	record, token := resource+"@tick", strconv.FormatUint(lease.token, 10)
	own, err := client.raisedFences(ctx, url.Values{"resource": {resource}, "token_min": {token}, "token_max": {token}})
	if err != nil {
		return false, err
	}
	if len(own) == 0 {
		return false, &UnavailableError{errors.New("the history does not have the fence of " + resource +
			": the tick cannot be decided")}
	}
	before, err := client.raisedFences(ctx, url.Values{"resource": {record}})
	if err != nil || len(before) > 0 && own[0].At.Sub(before[0].At).Abs() < every/2 {
		return false, err
	}
	started, err := client.TryAcquire(ctx, record, LeaseOptions{FenceOnGrant: true})
	if errors.Is(err, ErrResourceLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := started.Release(ctx); err != nil {
		client.logf("fencegate: release of the %v: %v", started, err)
	}
	token = strconv.FormatUint(started.token, 10)
	after, err := client.raisedFences(ctx, url.Values{"resource": {record}, "token_max": {token}})
	if err != nil || len(after) == 0 || after[0].FencingToken != started.token {
		return false, err
	}
	// Another caller that held the lease meanwhile may have recorded its start between the two.
	if len(before) == 0 {
		return len(after) == 1, nil
	}
	return len(after) > 1 && after[1].FencingToken == before[0].FencingToken, nil
}

// raisedFences returns the two newest raised fences that match filters.
func (client *Client) raisedFences(ctx context.Context, filters url.Values) ([]Event, error) {
	filters.Set("event", "fence_raised")
	filters.Set("limit", "2")
	events := client.History(filters)
	var found []Event
	for len(found) < 2 && events.Next(ctx) {
		found = append(found, events.Event())
	}
	return found, events.Err()
}
