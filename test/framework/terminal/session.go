//go:build unix

package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// endMark ends the output of the typed text. No command prints it by itself.
const endMark = "\x1eend"

// Session is one shell into which things are typed one after the other, so that variables last. A command that fails
// ends it.
type Session struct {
	shell   *process.Process
	in, out *os.File
	shown   *bufio.Reader
}

// NewSession starts a shell in a directory, with an [Environment]. It ends with this program.
func NewSession(dir string, env []string) (*Session, error) {
	typed, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start shell: %w", err)
	}
	out, shown, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start shell: %w", errors.Join(err, typed.Close(), in.Close()))
	}
	// A terminal shows errors between the output.
	shell, err := process.Start(process.Command{Name: "shell", Path: "sh", Args: []string{"-c", "exec sh -e 2>&1"},
		Dir: dir, Env: env, Stdin: typed, Stdout: shown})
	closed := errors.Join(typed.Close(), shown.Close()) // the shell has its own
	if err != nil {
		return nil, errors.Join(err, closed, in.Close(), out.Close())
	}
	return &Session{shell: shell, in: in, out: out, shown: bufio.NewReader(out)}, closed
}

// Type types a text, and returns the output and the errors of its commands, as a terminal shows them.
func (s *Session) Type(ctx context.Context, text string) (string, error) {
	// A terminal would wait at the prompt of a command that asks: here it reads the end.
	stop := context.AfterFunc(ctx, s.shell.Kill)
	defer stop()
	if _, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null\nprintf '%%s\\n' '%s'\n", text, endMark); err != nil {
		return "", fmt.Errorf("type: %w", err)
	}
	var shown strings.Builder
	for {
		line, err := s.shown.ReadString('\n')
		if before, ended := strings.CutSuffix(line, endMark+"\n"); ended {
			return shown.String() + before, nil
		}
		shown.WriteString(line)
		if err != nil {
			return shown.String(), errors.Join(errors.New("a command fails"), context.Cause(ctx), s.Close())
		}
	}
}

// Close ends the shell and its commands. It returns the shell's error if the shell has ended with one.
func (s *Session) Close() error {
	_ = s.in.Close()
	<-s.shell.Done()
	err := s.shell.Err()
	s.shell.Close()
	_ = s.out.Close()
	return err
}
