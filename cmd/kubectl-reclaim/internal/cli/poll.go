package cli

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
)

// Poll has the flags of a command that may repeat its reads.
type Poll struct {
	watch    bool
	interval time.Duration
}

// AddFlags adds --watch and --interval. each describes a read.
func (p *Poll) AddFlags(cmd *cobra.Command, each string) {
	cmd.Flags().BoolVarP(&p.watch, "watch", "w", false, "Repeat until interrupted, and print changes.")
	cmd.Flags().DurationVar(&p.interval, "interval", 5*time.Second, "Time between two reads with --watch. "+each)
}

// Validate checks the flags.
func (p *Poll) Validate() error {
	if p.interval <= 0 {
		return fmt.Errorf("--interval=%s: must be above 0", p.interval)
	}
	return nil
}

// Repeat reads a list and shows it, and with --watch again at each interval until ctx ends. A list that has not changed
// is not shown again.
func Repeat[L any](ctx context.Context, p Poll, read func() (L, time.Time, error),
	show func(l L, now time.Time, again bool) error) error {
	var last *L
	for {
		now, at, err := read()
		switch {
		case ctx.Err() != nil && last != nil:
			return nil // interrupted during a repeated read
		case err != nil:
			return err
		}
		if last == nil || !reflect.DeepEqual(now, *last) {
			if err := show(now, at, last != nil); err != nil {
				return err
			}
		}
		last = &now
		if !p.watch || !Sleep(ctx, p.interval) {
			return nil
		}
	}
}

// BeginAgain separates a repeated output from the previous one.
func BeginAgain(w io.Writer, again bool) {
	switch {
	case again && printers.IsTerminal(w):
		fmt.Fprint(w, "\x1b[H\x1b[2J")
	case again:
		fmt.Fprintln(w)
	}
}

// Sleep waits, and reports whether the whole time has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
