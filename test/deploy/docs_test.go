//go:build unix

package deploy

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// command is one that a page shows.
type command struct{ page, text string }

var (
	fence  = regexp.MustCompile("^```(\\w*)")
	inline = regexp.MustCompile("`((?:kubectl|helm) [^`…]+ [^`…]+)`")
	// typed are the first words of what is to be typed into a terminal. Other indented lines are not commands.
	typed = regexp.MustCompile(`^(\$ )?((kubectl|helm|docker|make|volume-guard|csi-reclaimer|go) |\.build/)`)
	// continued is the end of a line whose command continues on the next.
	continued = regexp.MustCompile(`\\\n[ \t]*`)
)

// commands returns what README.md, CONTRIBUTING.md and the pages of docs/ have a reader type: in blocks, which are
// indented or fenced as sh or console, and what is said of kubectl and helm in a sentence. References that are made
// from the code have none.
func commands(t *testing.T) (all []command) {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(file string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(file) == ".md" {
			pages = append(pages, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pages {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range shown(string(text)) {
			if c := (command{name, found}); !slices.Contains(all, c) && !strings.HasSuffix(name, "-flags.md") {
				all = append(all, c)
			}
		}
	}
	return all
}

// shown returns the commands in a page's text.
func shown(page string) (all []string) {
	fenced, isCode := false, false
	for line := range strings.Lines(continued.ReplaceAllString(page, "")) {
		if kind := fence.FindStringSubmatch(line); kind != nil {
			fenced = !fenced
			isCode = fenced && !slices.Contains([]string{"sh", "console"}, kind[1])
			continue
		}
		text, indented := strings.CutPrefix(line, "    ")
		text = strings.TrimSpace(text)
		switch {
		case isCode:
		case (fenced || indented) && typed.MatchString(text):
			text, _, _ = strings.Cut(strings.TrimPrefix(text, "$ "), "   #")
			all = append(all, strings.TrimSpace(text))
		case !fenced && !indented:
			for _, found := range inline.FindAllStringSubmatch(line, -1) {
				all = append(all, found[1])
			}
		}
	}
	return all
}

func TestCommandExtraction(t *testing.T) {
	const page = "Type `kubectl get pv NAME -o yaml`, or `kubectl get`.\n\n    make demo     # shows it\n    pvc-1   Bound\n\n    $ kubectl reclaim status\n    DRIVER  1\n\n" +
		"    kubectl get pv \\\n        -o json\n\n" +
		"```sh\nhelm list --all\n```\n\n```yaml\nkubectl: is no command\n```\n\n      - {name: kubectl}\n"
	want := []string{"kubectl get pv NAME -o yaml", "make demo", "kubectl reclaim status", "kubectl get pv -o json",
		"helm list --all"}
	if got := shown(page); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDocumentedCommands runs each in a shell at the root of the project, as its play says, or its play says
// why not.
func TestDocumentedCommands(t *testing.T) {
	s := newShell(t)
	s.makePV(t)
	plays, played := s.plays(t), map[string]bool{}
	for _, c := range commands(t) {
		p, known := plays[c.text]
		if !known {
			t.Errorf("%s: %q has no play: add one", c.page, c.text)
			continue
		}
		if !played[c.text] && p.why == "" {
			t.Run(c.text, func(t *testing.T) { s.run(t, c.text, p) })
		}
		played[c.text] = true
	}
	for text := range plays {
		if !played[text] {
			t.Errorf("%q is on no page any more", text)
		}
	}
}

// TestDocumentedImagesExist: what docker is to build is what image_test.go builds without it.
func TestDocumentedImagesExist(t *testing.T) {
	images, named := stages(t), 0
	for _, c := range commands(t) {
		words := strings.Fields(c.text)
		if words[0] != "docker" {
			continue
		}
		named++
		if file := words[slices.Index(words, "-f")+1]; file != "deploy/Dockerfile" {
			t.Errorf("%q builds from another file", c.text)
		}
		if target := words[slices.Index(words, "--target")+1]; images[target] == nil {
			t.Errorf("%q: there is no such image", c.text)
		}
	}
	if named == 0 {
		t.Error("no page builds an image")
	}
}

// play is how a command is run.
type play struct {
	// why it is not, in words for whoever reads this.
	why string
	// scene makes what the command is about.
	scene func(t *testing.T)
	// with replaces words: names that a reader puts in, and addresses that belong to this machine; also is added at
	// the end.
	with []string
	also string
	// want is in what it prints.
	want string
	// runsOn: it is a program that ends when it is asked to, once this is in its log.
	runsOn string
}

// shell is where commands are run: with the real kubectl and helm, and the plugin, as the cluster's administrator.
type shell struct {
	env  []string
	root string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	home, programs := t.TempDir(), t.TempDir()
	for name, program := range map[string]func() (string, error){
		"kubectl": kubectlProgram, "helm": helmProgram,
		"kubectl-reclaim": func() (string, error) { return program.Build(patiently(t), "kubectl-reclaim", os.Stderr) },
	} {
		binary, err := program()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(binary, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(kubeconfig), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := controlplane.WriteKubeconfig(kubeconfig, cluster.Admin()); err != nil {
		t.Fatal(err)
	}
	return &shell{root: root, env: []string{
		"HOME=" + home, "KUBECONFIG=" + kubeconfig, "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home,
	}}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(program.Close)
	if err := program.WaitLog(patiently(t), until); err != nil {
		t.Fatal(err)
	}
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

// TestMigrationGuideNamesExistingTests expects a test for each path.
func TestMigrationGuideNamesExistingTests(t *testing.T) {
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "migrate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "test", "e2e", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(guide), -1)
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("docs/how-to/migrate.md names %s, which is no test", name[1])
		}
	}
	if paths := regexp.MustCompile("(?m)^`Test\\w+`$").FindAllString(string(guide), -1); len(paths) != 4 {
		t.Errorf("docs/how-to/migrate.md has %d paths with a test", len(paths))
	}
}

// forget runs what undoes a scene, when the test ends.
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
