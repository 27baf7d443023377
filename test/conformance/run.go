//go:build unix

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// Options say what to run.
type Options struct {
	// Suites are run one after the other, each with these Parts.
	Suites []Suite
	Parts  []Parts
	// Store has the results. Its folder is made.
	Store Store
	// Progress receives the progress of compilations.
	Progress io.Writer
	// Line shows how far the run is.
	Line *Line
}

// Run runs suites, and returns their results in that order. It takes the results that the store has of
// this commit, and saves each new one. A suite without a result is an error, after which the others run.
func Run(ctx context.Context, o Options) ([]Result, error) {
	kubernetes, err := controlplane.Newest.Release()
	if err != nil {
		return nil, err
	}
	commit, err := commitOfTree(ctx)
	if err != nil {
		return nil, err
	}
	binary, err := controlplane.BuildSuite(ctx, controlplane.Newest, o.Progress)
	if err != nil {
		return nil, err
	}
	var results []Result
	var failures []error
	for _, suite := range o.Suites {
		for _, parts := range o.Parts {
			result, err := o.one(ctx, binary, Result{Suite: suite, Parts: parts, Kubernetes: kubernetes, Commit: commit})
			switch {
			case ctx.Err() != nil:
				return results, errors.New("interrupted; the next run at this commit goes on here")
			case err != nil:
				failures = append(failures, fmt.Errorf("%s, %s: %w", suite.Name, parts, err))
			default:
				results = append(results, result)
			}
		}
	}
	return results, errors.Join(failures...)
}

// one returns a result of the store, or runs the suite.
func (o Options) one(ctx context.Context, binary string, r Result) (Result, error) {
	known, has, err := o.Store.load(r.Suite, r.Parts)
	if err != nil || has && known.of(r) && known.Commit == r.Commit {
		return known, err
	}
	if r.Suite.RealNodes {
		if err := nodesSupported(); err != nil {
			return r, err
		}
	}
	logs := o.Store.file(r.Suite, r.Parts, "logs")
	if err := errors.Join(os.RemoveAll(logs), os.MkdirAll(logs, 0o755)); err != nil {
		return r, err
	}
	o.Line.begin(r)
	defer o.Line.end()
	began := time.Now()
	c, err := startCluster(ctx, r, binary, logs, o.Progress)
	if err == nil {
		r.Specs, err = o.runSpecs(ctx, c)
	}
	if err == nil && r.Suite.Driver != "" && r.Suite.Manifests == "" {
		r.Specs = append(r.Specs, c.nothingLeft(ctx))
	}
	if err := errors.Join(err, c.stop()); err != nil {
		return r, fmt.Errorf("%w; logs are in %s", err, logs)
	}
	r.Seconds = int(time.Since(began).Seconds())
	return r, o.Store.save(r)
}

// runSpecs runs the specs of a suite in a cluster. Failed specs are no error.
func (o Options) runSpecs(ctx context.Context, c *cluster) ([]Spec, error) {
	progress, err := o.Line.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer progress.close()
	report := filepath.Join(c.logs, "report.json")
	args := []string{
		"--kubeconfig=" + c.kubeconfig, "--provider=" + cmp.Or(c.suite.Provider, "skeleton"),
		// Nothing runs in kube-system, and no node is tainted.
		"--minStartupPods=0", "--allowed-not-ready-nodes=-1",
		"--progress-report-url=" + progress.url, "--ginkgo.json-report=" + report, "--ginkgo.no-color", "--ginkgo.v",
		"--ginkgo.timeout=24h", // a suite has no limit but those of its specs
		"--ginkgo.focus=" + c.suite.Focus,
	}
	if c.suite.RealNodes {
		args = append(args, "--num-nodes=2")
	} else {
		args = append(args, "--num-nodes=1")
	}
	if c.suite.Driver != "" {
		file, err := c.suite.driverFile()
		if err != nil {
			return nil, err
		}
		args = append(args, "--storage.testdriver="+file)
	}
	for _, skip := range c.suite.skipped() {
		args = append(args, "--ginkgo.skip="+skip)
	}
	exit := (*exec.ExitError)(nil)
	err = process.Run(ctx, process.Command{Name: "e2e.test", Path: c.binary, Args: args, Env: c.env,
		Dir: c.logs, LogFile: filepath.Join(c.logs, "e2e.log")})
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	file, opened := os.Open(report)
	if opened != nil {
		return nil, errors.Join(err, opened)
	}
	defer func() { _ = file.Close() }()
	specs, err := readReport(file, c.suite)
	return specs, errors.Join(err, context.Cause(ctx))
}

// commitOfTree is the version of this tree as tools/version.sh has it. The page that is made here does not count as a
// change. A tree with other changes has a name of its own for each run, so that no result is taken for that of other
// code.
func commitOfTree(ctx context.Context) (string, error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", err
	}
	git := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := process.Run(ctx, process.Command{Path: "git", Args: args, Dir: root, Stdout: &out})
		return strings.TrimSpace(out.String()), err
	}
	commit, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", fmt.Errorf("find the commit: %w", err)
	}
	changes, err := git("status", "--porcelain", "--", ".", ":!"+PagePath)
	if err != nil {
		return "", fmt.Errorf("find changes: %w", err)
	}
	if changes != "" {
		commit += time.Now().UTC().Format(changed + "-20060102T150405")
	}
	return commit, nil
}

// changed marks the commit of a tree with changes.
const changed = "+changes"

// OfChangedTree reports whether the result is of code that was not committed.
func (r Result) OfChangedTree() bool { return strings.Contains(r.Commit, changed) }
