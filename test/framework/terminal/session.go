//go:build unix

package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// endMark ends the output of the typed text. No command prints it by itself.
const endMark = "\x1eend"

// Session is one shell into which things are typed one after the other, so that variables last. A command that fails
// ends it.
type Session struct {
	shell *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
}

// NewSession starts a shell in a directory, with an [Environment].
func NewSession(dir string, env []string) (*Session, error) {
	s := &Session{shell: exec.Command("sh", "-e")}
	s.shell.Dir, s.shell.Env = dir, append(os.Environ(), env...)
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its commands end with it
	in, err := s.shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.shell.Stdout, s.shell.Stderr = writer, writer
	s.in, s.out = in, bufio.NewReader(reader)
	err = s.shell.Start()
	if closed := writer.Close(); err != nil || closed != nil {
		return nil, fmt.Errorf("start shell: %w", errors.Join(err, closed))
	}
	return s, nil
}

// Type types a text, and returns the output and the errors of its commands, as a terminal shows them.
func (s *Session) Type(ctx context.Context, text string) (string, error) {
	// A terminal would wait at the prompt of a command that asks: here it reads the end.
	stop := context.AfterFunc(ctx, s.kill)
	defer stop()
	if _, err := fmt.Fprintf(s.in, "{\n%s\n} </dev/null\nprintf '%%s\\n' '%s'\n", text, endMark); err != nil {
		return "", fmt.Errorf("type: %w", err)
	}
	var shown strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if before, ended := strings.CutSuffix(line, endMark+"\n"); ended {
			return shown.String() + before, nil
		}
		shown.WriteString(line)
		if err != nil {
			return shown.String(), errors.Join(errors.New("a command fails"), context.Cause(ctx), s.Close())
		}
	}
}

func (s *Session) kill() { _ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) }

// Close ends the shell and its commands. It returns the shell's error if the shell had ended by itself with one.
func (s *Session) Close() error {
	_ = s.in.Close()
	if s.shell.ProcessState != nil {
		return nil
	}
	err := s.shell.Wait()
	s.kill()
	return err
}
