//go:build unix

package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/terminal"
)

// command is a command on a page.
type command struct{ page, text string }

// tutorial is the page that TestTutorial of test/nodes types as a whole, on nodes that run its pods.
const tutorial = "docs/tutorial.md"

// commands returns the commands of README.md, CONTRIBUTING.md and the pages of docs/: in blocks, which are indented or
// fenced as sh or console, and commands of kubectl and helm in a sentence. References that are generated from the code
// have none, and the tutorial has its own test.
func commands(t *testing.T) (all []command) {
	t.Helper()
	root := process.RootForTest(t)
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(file string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(file) == ".md" {
			pages = append(pages, file)
		}
		return err
	})
	must(t, err)
	for _, file := range pages {
		text, err := os.ReadFile(file)
		must(t, err)
		name, err := filepath.Rel(root, file)
		must(t, err)
		for _, found := range terminal.Commands(string(text)) {
			elsewhere := strings.HasSuffix(name, "-flags.md") || name == tutorial
			if c := (command{name, found}); !slices.Contains(all, c) && !elsewhere {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestDocumentedCommands runs each command in a shell at the root of the project. Each command has a play, which says
// how to run it, or why it is not run.
func TestDocumentedCommands(t *testing.T) {
	s := newShell(t)
	makePV(t)
	plays, played := s.plays(t), map[string]bool{}
	for _, c := range commands(t) {
		if p, known := plays[c.text]; known && !played[c.text] && p.why == "" {
			t.Run(c.text, func(t *testing.T) { s.run(t, c.text, p) })
		}
		played[c.text] = true
	}
}

// TestDocumentedCommandsHavePlays finds a command without a play before TestDocumentedCommands, which takes minutes.
func TestDocumentedCommandsHavePlays(t *testing.T) {
	s := &shell{programs: func(*testing.T) (socket, sidecar, guard string) { return "socket", "sidecar", "guard" }}
	plays, listed := s.plays(t), map[string]bool{}
	for _, c := range commands(t) {
		if _, known := plays[c.text]; !known {
			t.Errorf("%s: %q has no play: add one", c.page, c.text)
		}
		listed[c.text] = true
	}
	for text := range plays {
		if !listed[text] {
			t.Errorf("%q is on no page any more", text)
		}
	}
}

// play is how a command is run.
type play struct {
	// why it is not run, in words for the reader.
	why string
	// scene creates the objects of the command.
	scene func(t *testing.T)
	// with replaces words: names that a reader puts in, and addresses that belong to this machine; also is added at
	// the end.
	with []string
	also string
	// want is part of its output.
	want string
	// runsOn is set for a program that runs until it is stopped: the test stops it once this text is in its log.
	runsOn string
}

// shell is where commands are run: with the real kubectl and helm, and the plugin, as the cluster's administrator.
type shell struct {
	env  []string
	root string
	// programs returns the socket of a driver, and the paths of csi-reclaimer and volume-guard.
	programs func(t *testing.T) (socket, sidecar, guard string)
}

func newShell(t *testing.T) *shell {
	t.Helper()
	suite.Deep(t, suite.Compiles)
	root := process.RootForTest(t)
	env, err := terminal.Environment(patiently(t), t.TempDir(), cluster.Admin())
	must(t, err)
	return &shell{root: root, env: env, programs: startPrograms}
}

func (s *shell) run(t *testing.T, text string, p play) {
	t.Helper()
	if p.scene != nil {
		p.scene(t)
	}
	line := strings.TrimSpace(strings.NewReplacer(p.with...).Replace(text) + " " + p.also)
	// The shell's own place is the program's, so that it is the program that is asked to end.
	command := process.Command{Name: text, Path: "sh", Args: []string{"-c", line}, Env: s.env, Dir: s.root}
	if p.runsOn != "" {
		command.Args[1] = "exec " + line
		s.runsOn(t, command, p.runsOn)
		return
	}
	var out, complaints bytes.Buffer
	command.Stdout, command.Tee = &out, &complaints
	if err := process.Run(patiently(t), command); err != nil {
		t.Errorf("%s\n%v\n%s%s", line, err, out.String(), complaints.String())
	}
	if !strings.Contains(out.String(), p.want) {
		t.Errorf("%s\nprints %q, want %q in it", line, out.String(), p.want)
	}
}

func (s *shell) runsOn(t *testing.T, command process.Command, until string) {
	t.Helper()
	program, err := process.Start(command)
	must(t, err)
	t.Cleanup(program.Close)
	must(t, program.WaitLog(patiently(t), until))
	if err := program.Stop(time.Minute); err != nil {
		t.Errorf("%v\n%s", err, program.LogTail(20))
	}
}

// documented returns the arguments of the only command on the pages that begins so.
func documented(t *testing.T, begins string) []string {
	t.Helper()
	var found [][]string
	for _, c := range commands(t) {
		if strings.HasPrefix(c.text, begins+" ") {
			found = append(found, strings.Fields(c.text)[1:])
		}
	}
	if len(found) != 1 {
		t.Fatalf("the pages have %d commands %q, want 1", len(found), begins)
	}
	return slices.Clip(found[0])
}

// TestMigrationGuideNamesExistingTests expects an end-to-end test for each migration path.
func TestMigrationGuideNamesExistingTests(t *testing.T) {
	root := process.RootForTest(t)
	guide, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "migrate.md"))
	must(t, err)
	tests := ""
	files, err := filepath.Glob(filepath.Join(root, "test", "e2e", "*", "*_test.go"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		tests += string(text)
	}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(guide), -1) {
		if !strings.Contains(tests, "\nfunc "+name[1]+"(") {
			t.Errorf("docs/how-to/migrate.md names %s, which is no test", name[1])
		}
	}
	if paths := regexp.MustCompile("(?m)^`Test\\w+`$").FindAllString(string(guide), -1); len(paths) != 4 {
		t.Errorf("docs/how-to/migrate.md has %d paths with a test", len(paths))
	}
}

// TestLabelsAreRemovedInOrder removes the labels of a namespace in the order of the page, while the policy that relates
// both is in force.
func TestLabelsAreRemovedInOrder(t *testing.T) {
	const policy = "csi-reclaimer-single-node-namespace"
	install(t, "", slices.DeleteFunc(manifestsOf(t, "single-node-policies.yaml"),
		func(d document) bool { return d.GetName() != policy }))
	forget(t, func(ctx context.Context) error {
		api := client.AdmissionregistrationV1()
		return errors.Join(remove(ctx, api.ValidatingAdmissionPolicyBindings(), policy),
			remove(ctx, api.ValidatingAdmissionPolicies(), policy))
	})
	keys := map[string]string{"csi-reclaimer.io/pod-safety": "enforce", "csi-reclaimer.io/single-node": "all"}
	namespaces := client.CoreV1().Namespaces()
	made := create(t, namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "labels-", Labels: keys}})
	label := func(key, value string, dryRun ...string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
		_, err := namespaces.Patch(patiently(t), made.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	until(t, "the policy is in force", func() bool {
		return apierrors.IsForbidden(label("csi-reclaimer.io/single-node", `"invalid"`, metav1.DryRunAll))
	})
	var removed []string
	for _, c := range commands(t) {
		key, is := strings.CutPrefix(c.text, "kubectl label namespaces --all ")
		if !is || c.page != "docs/how-to/remove.md" {
			continue
		}
		if err := label(strings.TrimSuffix(key, "-"), "null"); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		removed = append(removed, key)
	}
	if len(removed) != len(keys) {
		t.Errorf("the page removes the labels %q", removed)
	}
}

// forget undoes a scene at the end of the test.
func forget(t *testing.T, undo func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := undo(ctx); err != nil {
			t.Error(errors.Join(errors.New("clean up"), err))
		}
	})
}
