package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestVersion(t *testing.T) {
	s := commandline.SomethingWaits(t)
	for args, want := range map[string]string{
		"version":                                "Plugin version: unknown\nKubernetes version: v1.36.2\n",
		"version --client":                       "Plugin version: unknown\n",
		"version --client -o wide":               "Platform: ",
		"version -o json":                        `"kubernetesVersion": "v1.36.2"`,
		"version --client -o yaml":               "kind: Version",
		"--version":                              "kubectl reclaim version unknown",
		"list -A --driver=" + commandline.Driver: "TerminatingBound",
		"status --driver=" + commandline.Driver:  "3h, shop/data-db-0 (pvc-8a5c0f1e…)",
		"status -o wide":                         "3h, shop/data-db-0 (" + commandline.LongPVName + ")",
		"__complete list --driver ":              commandline.Driver + "\n",
		"__complete release --driver ":           commandline.Driver + "\n",
		"__complete settle --driver ":            commandline.Driver + "\n",
		"__complete leaks --driver ":             commandline.Driver + "\n",
		"__complete web --driver ":               commandline.Driver + "\n",
		"__complete status --driver ":            commandline.Driver + "\n",
		"__complete explain pv ":                 commandline.LongPVName + "\n",
		"__complete explain pvc/da":              "pvc/data-db-0\n",
		"__complete explain statefulset/":        ":4",
	} {
		words := strings.Split(args, " ")
		if out, err := completing(t, s, words...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %q, %v, want %q", args, out, err, want)
		}
	}
	out, err := root.Run(t, "version", "--server=http://127.0.0.1:1", "--kubeconfig=/dev/null")
	if err == nil || out != "Plugin version: unknown\n" {
		t.Errorf("without a cluster: %q, %v", out, err)
	}
}

// completing runs a command line whose last argument may be a word to complete, so that flags stand before it.
func completing(t *testing.T, s *commandline.Server, words ...string) (string, error) {
	t.Helper()
	if words[0] != "__complete" {
		return root.Against(t, s, &commandline.Typing{}, words...)
	}
	var out bytes.Buffer
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cmd := root.Command(t, &out, s, &commandline.Typing{})
	cmd.SetArgs(append([]string{"__complete", words[1], "--server=" + server.URL, "--namespace=shop"}, words[2:]...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestUnknownDriverIsAnError(t *testing.T) {
	for _, args := range []string{"list", "list -A", "status", "release --dry-run", "settle --all --dry-run",
		"leaks", "web"} {
		_, err := root.Against(t, commandline.SomethingWaits(t), &commandline.Typing{},
			append(strings.Fields(args), "--driver=typo")...)
		if text := cli.ErrorText(err); !strings.Contains(text, "--driver=typo") ||
			!strings.Contains(text, "next: name one of "+commandline.Driver) {
			t.Errorf("%s: %s", args, text)
		}
	}
}

func TestUsageErrorsNameTheHelp(t *testing.T) {
	for args, want := range map[string]string{
		"explan": `unknown command "explan" for "kubectl reclaim": did you mean explain?` +
			"\nnext: see the commands: kubectl reclaim --help",
		"lis":              `: did you mean list?`,
		"status --drivr=x": "unknown flag: --drivr\nnext: see its flags: kubectl reclaim status --help",
	} {
		_, err := root.Run(t, strings.Fields(args)...)
		if text := cli.ErrorText(err); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", args, text, want)
		}
	}
	several := fmt.Errorf("x: %w", errors.Join(context.Canceled, errors.New("y")))
	if text := cli.ErrorText(several); strings.Contains(text, "\n") {
		t.Errorf("an error has several lines: %q", text)
	}
}

func TestHelpHasOwnFlagsFirst(t *testing.T) {
	for _, args := range []string{"--help", "list --help"} {
		out, err := root.Run(t, strings.Fields(args)...)
		own, others, found := strings.Cut(out, "\nFlags of all commands, for the cluster as in kubectl:\n")
		if err != nil || !found || strings.Contains(own, "--kubeconfig") || !strings.Contains(others, "--kubeconfig") ||
			!strings.Contains(others, "-v, --v") || !strings.Contains(own, "-h, --help") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func TestVerbosityIsTheLogLevel(t *testing.T) {
	defer func() { _ = root.Discard().PersistentFlags().Lookup("v").Value.Set("0") }()
	if _, err := root.Run(t, "version", "--client", "-v=6"); err != nil || !klog.V(6).Enabled() || klog.V(7).Enabled() {
		t.Errorf("the level is not 6: %v", err)
	}
}

// Each command that the help lists has a page, and no page names this machine or this time.
func TestManPages(t *testing.T) {
	t.Setenv("HOME", "/home/of-a-builder")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	folder := t.TempDir()
	must.Get(root.Run(t, "man", folder))(t)
	want := map[string]bool{cli.Name + ".1": true}
	for _, cmd := range root.Discard().Commands() {
		want[cli.Name+"-"+cmd.Name()+".1"] = cmd.IsAvailableCommand()
	}
	for page, is := range want {
		text, err := os.ReadFile(filepath.Join(folder, page))
		if is != (err == nil) {
			t.Errorf("%s: %v, want a page: %t", page, err, is)
		}
		if is && (!strings.Contains(string(text), `"Nov 2023"`) || strings.Contains(string(text), "of-a-builder") ||
			!strings.Contains(string(text), "kubectl reclaim")) {
			t.Errorf("%s is\n%s", page, text)
		}
	}
	if _, err := root.Run(t, "man"); err == nil {
		t.Error("pages are written without a folder")
	}
}

// TestK9sPlugins holds the kinds and flags of the plugins of k9s against those of the commands that they run.
func TestK9sPlugins(t *testing.T) {
	text := must.Get(os.ReadFile("../../deploy/k9s/plugins.yaml"))(t)
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Plugins) != 3 {
		t.Fatalf("%d plugins, %v", len(file.Plugins), err)
	}
	for name, plugin := range file.Plugins {
		for _, scope := range plugin.Scopes {
			if _, known := cli.KindOf(scope); !known {
				t.Errorf("%s: %s is no kind that is explained", name, scope)
			}
		}
		line, _, _ := strings.Cut(plugin.Args[len(plugin.Args)-1], ";")
		words, is := strings.CutPrefix(line, "kubectl reclaim ")
		cmd, args, err := root.Discard().Find(strings.Fields(words))
		if err != nil || !is {
			t.Fatalf("%s runs %q: %v", name, line, err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("%s runs %q: %v", name, line, err)
		}
	}
}
