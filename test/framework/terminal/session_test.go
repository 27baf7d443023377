//go:build unix

package terminal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func newSession(t *testing.T) *Session {
	t.Helper()
	s := must.Get(NewSession(t.TempDir(), []string{"GIVEN=given"}))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSessionKeepsVariables(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct{ typed, want string }{
		{"A=$(printf one)\n", ""},
		{"echo $A $GIVEN; echo error >&2\n", "one given\nerror\n"},
		{"cat <<EOF\n$A\ntwo\nEOF\n", "one\ntwo\n"},
		{"printf without-end", "without-end"},
		{"cat; echo at once\n", "at once\n"}, // it reads none of the text typed next
	} {
		if got, err := s.Type(t.Context(), c.typed); err != nil || got != c.want {
			t.Errorf("%q shows %q, %v, want %q", c.typed, got, err, c.want)
		}
	}
}

func TestSessionEndsWithFailure(t *testing.T) {
	s := newSession(t)
	if got, err := s.Type(t.Context(), "echo before\nfalse\necho after\n"); err == nil || got != "before\n" {
		t.Errorf("%q, %v, want an error after the first line", got, err)
	}
	if _, err := s.Type(t.Context(), "echo more\n"); err == nil {
		t.Error("typed into a shell that has ended")
	}
}

func TestSessionEndsWithContext(t *testing.T) {
	s := newSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := filepath.Join(t.TempDir(), "begun")
	must.OK(t, syscall.Mkfifo(begun, 0o600))
	go func() {
		_, _ = os.ReadFile(begun) // waits for the shell to write
		cancel()
	}()
	if got, err := s.Type(ctx, "echo before\necho >"+begun+"\nsleep 1000\n"); !errors.Is(err, context.Canceled) ||
		got != "before\n" {
		t.Errorf("%q, %v, want it ended", got, err)
	}
}
