//go:build unix

package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

const usageEnd = `
Ctrl-C ends everything at any time; nothing is left running, and all that it wrote is removed, save
for the logs when something went wrong.

Exit status:
  0    every scenario ended as it should
  1    one did not, or something could not be started; the reason is the last line
  2    a flag or argument that is not known
  130  interrupted before the verdicts

Colour is used on a terminal only, and not where NO_COLOR is set (https://no-color.org).
`

// Command is a program that shows scenarios.
type Command struct {
	// Flags has the command's name, and the flags that it has beside --no-color.
	Flags *pflag.FlagSet
	// Usage is the text before the flags.
	Usage string
	// Show plays the scenarios. Its context ends when the command is interrupted.
	Show func(context.Context, *Printer) error
}

// Run parses the arguments of the command line, shows the scenarios, and returns the exit status.
func (c Command) Run(args []string, stdout *os.File, stderr io.Writer) int {
	noColor := c.Flags.Bool("no-color", false, "Plain text, also on a terminal.")
	c.Flags.Usage = func() { fmt.Fprint(stdout, c.Usage, c.Flags.FlagUsages(), usageEnd) }
	err := c.Flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && c.Flags.NArg() > 0 {
		err = fmt.Errorf("argument %q is not known", c.Flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v; see --help\n", c.Flags.Name(), err)
		return 2
	}
	// A terminal or a pipe that closes is an interrupt too: the folders would stay otherwise.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()

	p := NewPrinter(stdout, !*noColor && os.Getenv("NO_COLOR") == "" && isTerminal(stdout))
	status, line := conclude(c.Show(ctx, p), ctx.Err() != nil)
	if line != "" {
		fmt.Fprintln(stderr, c.Flags.Name()+":", line)
	}
	return status
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// conclude returns the exit status and the last line, which may be empty.
func conclude(err error, interrupted bool) (status int, line string) {
	const asShellsHaveIt = 128 + int(syscall.SIGINT)
	switch {
	case err == nil:
		return 0, "" // also when Ctrl-C ended the kept cluster
	case errors.Is(err, errWrong) || !interrupted:
		return 1, err.Error()
	case errors.Is(err, errUntidy):
		return asShellsHaveIt, "interrupted: " + err.Error()
	}
	return asShellsHaveIt, "interrupted; everything it started has ended, and what it wrote is removed"
}
