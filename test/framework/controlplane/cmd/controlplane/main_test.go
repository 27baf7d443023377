//go:build unix

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// known are the versions as the error of an unknown one lists them.
const known = "v1.37, v1.36, v1.35, v1.34, v1.33, v1.30"

func TestInvalidUsageEndsInOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no command":      {want: "no command given"},
		"unknown command": {args: []string{"down"}, want: `unknown command "down"`},
		"unknown version": {args: []string{"build", "--version", "v1.0"},
			want: `control plane version "v1.0": known are ` + known},
		"unknown version to run": {args: []string{"up", "--version", "v1.0"},
			want: `control plane version "v1.0": known are ` + known},
		"argument too many": {args: []string{"build", "v1.37"}, want: `unexpected argument "v1.37"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, progress bytes.Buffer
			if err := run(t.Context(), tc.args, &out, &progress); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestVersionsToBuild(t *testing.T) {
	for value, want := range map[string][]controlplane.Version{
		"edges": controlplane.Edges(), "all": controlplane.Versions(),
		"v1.30,v1.36": {controlplane.V1_30, controlplane.V1_36},
	} {
		if got, err := parseVersions(value); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, error %v, want %q", value, got, err, want)
		}
	}
}

func TestUpPrintsKubeconfigAndCleansUpOnInterrupt(t *testing.T) {
	if _, err := controlplane.Build(t.Context(), controlplane.Newest, os.Stderr); err != nil {
		t.Fatal(err)
	}
	binary := must.Get(process.Build(t.Context(), "./test/framework/controlplane/cmd/controlplane", nil))(t)
	temporary := t.TempDir()
	p, err := process.Start(process.Command{
		Path: binary, Args: []string{"up", "--node", "node-1"}, Env: []string{"TMPDIR=" + temporary},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	must.OK(t, p.WaitLog(t.Context(), "Ctrl-C stops it."))
	_, rest, _ := strings.Cut(p.LogTail(10), "export KUBECONFIG=")
	kubeconfig, _, _ := strings.Cut(rest, "\n")
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	client := must.Get(kubernetes.NewForConfig(config))(t)
	for ticker := time.NewTicker(50 * time.Millisecond); ; {
		_, err := client.StorageV1().CSINodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err == nil {
			break
		}
		select {
		case <-p.Done():
			t.Fatalf("it has ended; node: %v", err)
		case <-ticker.C:
		}
	}
	must.OK(t, p.Signal(os.Interrupt))
	<-p.Done()
	if err := p.Err(); err != nil {
		t.Errorf("exit: %v\n%s", err, p.LogTail(20))
	}
	left := must.Get(os.ReadDir(temporary))(t)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
