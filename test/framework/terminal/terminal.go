//go:build unix

// Package terminal is the terminal of a reader of the documentation: a shell with the real kubectl and helm, and with
// the plugin, as a cluster's administrator. It also extracts the commands from a page.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// The operators' tools are compiled from the Go module proxy when they are first needed. test/deploy/tools/go.mod has
// the versions. Each function returns the path of its binary.
var (
	Helm = tool("helm.sh/helm/v4/cmd/helm")
	// Kubectl is compiled, because a machine's kubectl may be missing or of another version.
	Kubectl = tool("./test/deploy/kubectl.go")
	// Promtool would contain a client of each cloud without the tag.
	Promtool = tool("github.com/prometheus/prometheus/cmd/promtool", "-tags=remove_all_sd")
)

func tool(pkg string, goFlags ...string) func() (string, error) {
	return func() (string, error) {
		return process.Build(context.Background(), pkg, os.Stderr, append(goFlags, "-modfile=test/deploy/tools/go.mod")...)
	}
}

// Environment returns the variables of a shell: its PATH begins with kubectl, helm and the plugin, and nothing is the
// machine's user's. home is an empty directory, where the kubeconfig is, too.
func Environment(ctx context.Context, home string, config *rest.Config) ([]string, error) {
	programs := filepath.Join(home, "bin")
	if err := os.Mkdir(programs, 0o700); err != nil {
		return nil, err
	}
	for name, build := range map[string]func() (string, error){
		"kubectl": Kubectl, "helm": Helm,
		"kubectl-reclaim": func() (string, error) { return program.Build(ctx, "kubectl-reclaim", os.Stderr) },
	} {
		binary, err := build()
		if err != nil {
			return nil, fmt.Errorf("make terminal: %w", err)
		}
		if err := os.Symlink(binary, filepath.Join(programs, name)); err != nil {
			return nil, err
		}
	}
	kubeconfig := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(kubeconfig), 0o700); err != nil {
		return nil, err
	}
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return []string{
		"HOME=" + home, "KUBECONFIG=" + kubeconfig, "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home,
	}, nil
}

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
