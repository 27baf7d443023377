// Package panics keeps a panic from ending the program. A program whose controllers protect data must not end because
// of one object, nor because of a part that only shows something to people.
package panics

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Err is wrapped by the error of a panic.
var Err = errors.New("panic")

// Contain calls do, and returns its panic as an error, after logging it with its stack and with about, which are keys
// and values of the log. It does not contain panics of goroutines that do starts.
func Contain(ctx context.Context, do func(), about ...any) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", Err, cause)
			klog.FromContext(ctx).Error(err, "Work ended in a panic, and the program continues; please report it",
				append(about, "stack", string(debug.Stack()))...)
		}
	}()
	do()
	return nil
}

// restartAfter is the delay after a panic, because the next call most likely ends in the same one.
const restartAfter = time.Minute

// Restart calls run until it returns, and again a minute after each panic until ctx ends. It calls failed with the
// error of each panic. part names the work in the log.
func Restart(ctx context.Context, clock clock.Clock, part string, run func(context.Context), failed func(error)) {
	for {
		err := Contain(ctx, func() { run(ctx) }, "part", part)
		if err == nil {
			return
		}
		failed(err)
		select {
		case <-ctx.Done():
			return
		case <-clock.After(restartAfter):
		}
	}
}
