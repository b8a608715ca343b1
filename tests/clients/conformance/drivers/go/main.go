// The conformance driver of the Go client.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"fencegate"
)

type command struct {
	Do            string
	Key           string
	WaitMs        int64  `json:"wait_ms"`
	CancelAfterMs int64  `json:"cancel_after_ms"`
	WithinMs      int64  `json:"within_ms"`
	AnyOf         string `json:"any_of"`
	Mode          string
	Shared        string
	Ms            int64
	EveryMs       int64 `json:"every_ms"`
	Seal          bool
	ThenRelease   bool `json:"then_release"`
	After         string
	LeaseID       string `json:"lease_id"`
	Count         int
}

type outcome map[string]any

type scenario struct {
	URLs       []string
	RetryForMs int64 `json:"retry_for_ms"`
	Commands   []command
}

func main() {
	for lines := json.NewDecoder(os.Stdin); ; {
		var next scenario
		if lines.Decode(&next) != nil {
			return
		}
		run(next)
	}
}

func run(scenario scenario) {
	client, err := fencegate.New(fencegate.Options{URLs: scenario.URLs, RetryFor: ms(scenario.RetryForMs)})
	if err != nil {
		panic(err)
	}
	driver := driver{client: client}
	var outcomes []outcome
	for _, command := range scenario.Commands {
		found := outcome{"ok": true}
		if err := driver.perform(command, found); err != nil {
			found = outcomeOf(err)
		}
		outcomes = append(outcomes, found)
	}
	text, _ := json.Marshal(outcomes)
	fmt.Println(string(text))
}

type driver struct {
	client *fencegate.Client
	lease  *fencegate.Lease
}

func (driver *driver) perform(command command, found outcome) (err error) {
	ctx := context.Background()
	operation := fencegate.Call("f")
	var written *fencegate.WriteResult
	switch command.Do {
	case "acquire":
		if command.CancelAfterMs > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, ms(command.CancelAfterMs))
			defer cancel()
		}
		resource, options := "a", fencegate.LeaseOptions{Wait: ms(command.WaitMs), Seal: command.Seal}
		options.Mode, options.Shared = fencegate.Mode(command.Mode), strings.Fields(command.Shared)
		if names := strings.Fields(command.AnyOf); len(names) > 0 {
			resource, options.AnyOf = names[0], names[1:]
		}
		if command.WaitMs > 0 {
			driver.lease, err = driver.client.Acquire(ctx, resource, options)
		} else {
			driver.lease, err = driver.client.TryAcquire(ctx, resource, options)
		}
		if err == nil {
			found["token"] = fmt.Sprint(driver.lease.FencingToken())
			found["remaining_ms"] = driver.lease.Remaining().Milliseconds()
			found["mode"], found["shared"] = driver.lease.Mode(), strings.Join(driver.lease.Shared(), " ")
		}
	case "adopt":
		if driver.lease, err = driver.client.Adopt(ctx, command.LeaseID, fencegate.LeaseOptions{}); err == nil {
			found["token"] = fmt.Sprint(driver.lease.FencingToken())
			found["remaining_ms"] = driver.lease.Remaining().Milliseconds()
		}
	case "run_once_per_tick":
		found["run"], err = driver.client.RunOncePerTick(ctx, "a", ms(command.EveryMs), fencegate.LeaseOptions{},
			func(context.Context, *fencegate.Lease) error { return nil })
	case "write":
		options := fencegate.WriteOptions{ThenRelease: command.ThenRelease}
		written, err = driver.lease.WriteWith(ctx, options, operation)
	case "one_shot_write":
		options := fencegate.OneShotOptions{IdempotencyKey: command.Key}
		written, err = driver.client.OneShotWrite(ctx, []string{"a"}, options, operation)
	case "release":
		return driver.lease.Release(ctx)
	case "check":
		return driver.lease.Check()
	case "await_loss":
		select {
		case <-driver.lease.Done():
		case <-time.After(ms(command.WithinMs)):
			return errors.New("it is not lost")
		}
	case "sleep":
		time.Sleep(ms(command.Ms)) // as the scenario says
	case "history":
		events := driver.client.History(nil)
		var ids []int64
		for events.Next(ctx) {
			ids = append(ids, events.Event().ID)
		}
		found["ids"] = ids
		return events.Err()
	case "follow":
		var ids []int64
		enough := errors.New("enough")
		err := driver.client.Follow(ctx, nil, command.After, func(event fencegate.Event) error {
			if ids = append(ids, event.ID); len(ids) == command.Count {
				return enough
			}
			return nil
		})
		if found["ids"] = ids; err != enough {
			return err
		}
	}
	if written != nil {
		found["write_id"], found["replayed"] = written.WriteID, written.Replayed
	}
	return err
}

func outcomeOf(err error) outcome {
	var unknown *fencegate.OutcomeUnknownError
	var lost *fencegate.LeaseLostError
	var stale *fencegate.StaleFencingTokenError
	var problem *fencegate.Problem
	var unavailable *fencegate.UnavailableError
	switch {
	case errors.As(err, &unknown):
		return outcome{"error": "unknown", "key": unknown.IdempotencyKey}
	case errors.Is(err, context.DeadlineExceeded):
		return outcome{"error": "cancelled"}
	case errors.Is(err, fencegate.ErrResourceLocked):
		return outcome{"error": "locked"}
	case errors.As(err, &lost) || errors.Is(err, fencegate.ErrReleased):
		return outcome{"error": "lost"}
	case errors.As(err, &stale):
		return outcome{"error": "stale"}
	case errors.As(err, &problem):
		return outcome{"error": "refused", "slug": problem.Slug}
	case errors.As(err, &unavailable):
		return outcome{"error": "unavailable"}
	}
	return outcome{"error": err.Error()}
}

func ms(number int64) time.Duration { return time.Duration(number) * time.Millisecond }
