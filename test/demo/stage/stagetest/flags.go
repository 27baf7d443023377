//go:build unix

package stagetest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flags are the arguments of a command, with its exit status and a part of what it prints.
type Flags struct {
	Args           []string
	Status         int
	Stdout, Stderr string
}

// Run runs a command with each of the arguments, and with those that every command knows, or does not know. None may
// have it start something.
func Run(t *testing.T, run func(args []string, stdout *os.File, stderr io.Writer) int, cases map[string]Flags) {
	t.Helper()
	cases["an unknown flag"] = Flags{[]string{"--kep"}, 2, "", "see --help"}
	cases["an argument"] = Flags{[]string{"keep"}, 2, "", `argument "keep" is not known`}
	cases["help, exit codes"] = Flags{[]string{"-h"}, 0, "130", ""}
	for name, c := range cases {
		stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		status := run(c.Args, stdout, &stderr)
		printed, err := os.ReadFile(stdout.Name())
		if err := errors.Join(err, stdout.Close()); err != nil {
			t.Fatal(err)
		}
		if status != c.Status || !strings.Contains(string(printed), c.Stdout) || !strings.Contains(stderr.String(),
			c.Stderr) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", name, status, printed, stderr.String())
		}
	}
}
