// Package commandline runs commands of kubectl-reclaim in tests, with the input of a person, against a server with the
// test's objects.
package commandline

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Root creates the command whose subcommands are tested. isTerminal reports whether a stream is a terminal.
type Root func(streams genericiooptions.IOStreams, isTerminal func(any) bool) *cobra.Command

// Typing is the input of a person. Before is called before the first read.
type Typing struct {
	Text   io.Reader
	Before func()
}

func (r *Typing) Read(p []byte) (int, error) {
	if r.Before != nil {
		r.Before()
		r.Before = nil
	}
	return r.Text.Read(p)
}

// Person returns the input of a person who types an answer in a terminal. change, if it is set, changes the server,
// which mu guards, before the answer. Without an answer, the input is no terminal.
func Person[S any](answer string, server S, mu sync.Locker, change func(S)) *Typing {
	if answer == "" {
		return &Typing{}
	}
	return &Typing{Text: strings.NewReader(answer), Before: func() {
		mu.Lock()
		defer mu.Unlock()
		if change != nil {
			change(server)
		}
	}}
}

func noTerminal(any) bool { return false }

// Discard returns a command without output.
func (r Root) Discard() *cobra.Command {
	return r(genericiooptions.NewTestIOStreamsDiscard(), noTerminal)
}

// Run runs a command line and returns its output.
func (r Root) Run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := r(streams, noTerminal)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// In runs a command line with this input and returns all of its output.
func (r Root) In(t *testing.T, input string, args ...string) (said string, err error) {
	t.Helper()
	streams, stdin, out, errOut := genericiooptions.NewTestIOStreams()
	stdin.WriteString(input)
	cmd := r(streams, noTerminal)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String() + errOut.String(), err
}

// Against runs a command line against a server, as Command does, and returns all of its output.
func (r Root) Against(t *testing.T, server http.Handler, typed *Typing, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := r.Command(t, &out, server, typed, args...).ExecuteContext(t.Context())
	return out.String(), err
}

// Command returns a command line against a server, in namespace shop, with typed as input. The input is a terminal if
// typed has a text.
func (r Root) Command(t *testing.T, out io.Writer, handler http.Handler, typed *Typing, args ...string) *cobra.Command {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cmd := r(genericiooptions.IOStreams{In: typed, Out: out, ErrOut: out}, func(any) bool { return typed.Text != nil })
	cmd.SetArgs(append(args, "--server="+server.URL, "--namespace=shop"))
	return cmd
}
