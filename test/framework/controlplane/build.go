//go:build unix

package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

// CacheVariable is the environment variable that moves the cache of compiled control planes from its default,
// the folder csi-reclaimer in the user's cache folder.
const CacheVariable = "CSI_RECLAIMER_CACHE"

const (
	// unusedAfter is how long a binary of other sources is kept: a week of switching between branches.
	unusedAfter = 7 * 24 * time.Hour
	// waitingNotice is how often a build that waits for another one says so.
	waitingNotice = 10 * time.Second
)

// Build compiles the control plane of a version, unless the cache has a binary of its present sources, and returns the
// path of the binary. A first build takes minutes and reports its steps to progress, which may be nil. Builds take
// turns, also across programs: Kubernetes needs all processors of a small machine, and gigabytes of memory.
//
// When ctx ends, or the program is killed, no half-made binary stays in the cache.
func Build(ctx context.Context, version Version, progress io.Writer) (binary string, err error) {
	return buildPackage(ctx, build{what: "Kubernetes", name: string(version), pkg: "../components",
		progress: progress}, version)
}

// BuildLean is Build for [Options.Lean].
func BuildLean(ctx context.Context, version Version, progress io.Writer) (binary string, err error) {
	if version != Newest {
		return "", fmt.Errorf("build control plane %s: only %s has a lean one", version, Newest)
	}
	return buildPackage(ctx, build{what: "Kubernetes", name: string(version) + "-lean", pkg: "../components/lean",
		sources: "../components", progress: progress}, version)
}

// BuildKubelet is Build for the kubelet of a version whose module has one. The kubelet is a separate binary, so that a
// control plane alone needs none of its packages.
func BuildKubelet(ctx context.Context, version Version, progress io.Writer) (binary string, err error) {
	return buildPackage(ctx, build{what: "kubelet", name: string(version) + "-kubelet", pkg: "./kubelet",
		progress: progress}, version)
}

// BuildSuite is Build for the test binary of Kubernetes' own end-to-end suite, of a version with a module in
// test/conformance.
func BuildSuite(ctx context.Context, version Version, progress io.Writer) (binary string, err error) {
	root, err := process.ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("build end-to-end suite %s: %w", version, err)
	}
	return buildPackage(ctx, build{what: "the end-to-end suite of Kubernetes", name: string(version) + "-e2e", pkg: ".",
		test: "k8s.io/kubernetes/test/e2e", module: filepath.Join(root, "test", "conformance", string(version)),
		progress: progress}, version)
}

func buildPackage(ctx context.Context, b build, version Version) (binary string, err error) {
	if b.module == "" {
		if b.module, err = version.moduleDir(); err != nil {
			return "", fmt.Errorf("build control plane %s: %w", version, err)
		}
	}
	if b.cache, err = cacheDir(); err != nil {
		return "", fmt.Errorf("build control plane %s: %w", version, err)
	}
	if b.progress == nil {
		b.progress = io.Discard
	}
	b.trimmed = version == Newest
	if binary, err = b.run(ctx); err != nil {
		return "", fmt.Errorf("build control plane %s: %w", b.name, err)
	}
	return binary, nil
}

func cacheDir() (string, error) {
	base := os.Getenv(CacheVariable)
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache folder (%s sets it): %w", CacheVariable, err)
		}
		base = filepath.Join(user, "csi-reclaimer")
	}
	base, err := filepath.Abs(base)
	return filepath.Join(base, "controlplane"), err
}

// build compiles one main package of a module, or the tests of a package, into the cache.
type build struct {
	what     string // the compiled program, for people
	name     string // begins each line of progress and the binary's name
	module   string // folder of the module
	pkg      string // the package, as a path from there
	test     string // the package with the tests; the package above then has their imports
	sources  string // folder of all its own files, as a path from there; default the package's
	cache    string // folder of all binaries
	trimmed  bool   // without a file that only tests need
	progress io.Writer
}

func (b build) run(ctx context.Context) (binary string, err error) {
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	key, err := b.key(ctx)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(b.cache, b.name+"-"+key)
	if used(binary) {
		return binary, nil
	}
	lock, err := b.takeTurn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if used(binary) { // made by the one we waited for
		return binary, nil
	}
	b.removeUnused(binary)
	if err := b.compile(ctx, binary); err != nil {
		return "", err
	}
	return binary, nil
}

// used says whether the binary exists and notes that it is in use.
func used(binary string) bool {
	now := time.Now()
	return os.Chtimes(binary, now, now) == nil
}

// key identifies the binary's inputs: the module's requirements, the files in the folder of the sources, the flags, the
// Go version and the platform.
func (b build) key(ctx context.Context) (string, error) {
	hash := sha256.New()
	var goEnv strings.Builder
	if err := process.Run(ctx, b.goCommand(&goEnv, "env", "GOVERSION", "GOOS", "GOARCH")); err != nil {
		return "", err
	}
	fmt.Fprintf(hash, "%q %q", buildFlags(), goEnv.String())
	files, err := filepath.Glob(filepath.Join(b.module, "go.*")) // go.mod and go.sum, sorted by name
	if err != nil {
		return "", err
	}
	sources := filepath.Join(b.module, cmp.Or(b.sources, b.pkg))
	err = filepath.WalkDir(sources, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%q %d\n", filepath.Base(path), len(content))
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// takeTurn waits until no other build writes to the cache.
func (b build) takeTurn(ctx context.Context) (*filelock.Lock, error) {
	path := filepath.Join(b.cache, "build.lock")
	stop := func() {}
	lock, err := filelock.Acquire(ctx, path, func() {
		start := time.Now()
		b.say("another program is building a control plane: waiting for it to end")
		stop = every(waitingNotice, func() {
			b.say("waiting for another build to end, %s so far", time.Since(start).Round(time.Second))
		})
	})
	stop()
	return lock, err
}

// removeUnused removes binaries of this name that were not used for long, and the scratch folders of killed builds. The
// caller holds the lock, so no other build runs. The next build retries failed removals.
func (b build) removeUnused(keep string) {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(b.cache, entry.Name())
		if strings.HasPrefix(entry.Name(), scratchPrefix) {
			_ = os.RemoveAll(path)
			continue
		}
		info, err := entry.Info()
		own := strings.HasPrefix(entry.Name(), b.name+"-") || strings.HasPrefix(entry.Name(), trimmedPrefix)
		if err == nil && path != keep && own && time.Since(info.ModTime()) > unusedAfter {
			_ = os.RemoveAll(path)
		}
	}
}

// scratchPrefix begins the name of the folder in which a build works.
const scratchPrefix = "building-"

// compile builds in a folder of its own beside the binaries, so that the binary appears by one rename.
func (b build) compile(ctx context.Context, binary string) (err error) {
	kubernetes, err := kubernetesVersion(b.module)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(b.cache, scratchPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	start := time.Now()
	b.say("compiling %s %s; a first build takes minutes, the next ones find it in %s", b.what, kubernetes, b.cache)
	flags := buildFlags()
	if b.trimmed {
		modfile, err := b.trim(ctx, scratch)
		if err != nil {
			return err
		}
		flags = append(flags, "-modfile="+modfile)
	}
	total, err := b.countStale(ctx, start, flags)
	if err != nil {
		return err
	}
	next := filepath.Join(scratch, "controlplane")
	lines := &lineCounter{}
	stop := every(progressInterval, func() {
		b.say("%s after %s", lines.describe(total), time.Since(start).Round(time.Second))
	})
	for _, args := range b.steps(next, append(flags, "-ldflags", linkerFlags(kubernetes))) {
		command := b.goCommand(nil, args...)
		command.Env = append(command.Env, "GOTMPDIR="+scratch) // the go command's own, when it is killed
		command.Tee = lines
		if err = process.Run(ctx, command); err != nil {
			break
		}
	}
	stop()
	if err != nil {
		return err
	}
	info, err := os.Stat(next)
	if err != nil {
		return err
	}
	if err := os.Rename(next, binary); err != nil {
		return err
	}
	b.say("built in %s: %s, %d MiB", time.Since(start).Round(time.Second), binary, info.Size()>>20)
	return nil
}

// steps are the calls of the go command that make the binary. Tests take two: go test does not say how far it is.
func (b build) steps(binary string, flags []string) [][]string {
	build := func(to string) []string {
		return slices.Concat([]string{"build", "-v", "-o", to}, flags, []string{b.pkg})
	}
	if b.test == "" {
		return [][]string{build(binary)}
	}
	return [][]string{build(os.DevNull), slices.Concat([]string{"test", "-c", "-o", binary}, flags, []string{b.test})}
}

// countStale asks how many packages the go command would compile, which downloads the modules that are missing.
func (b build) countStale(ctx context.Context, start time.Time, flags []string) (int, error) {
	args := slices.Concat([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags, []string{b.pkg})
	stale, downloads := &lineCounter{}, &lineCounter{}
	command := b.goCommand(stale, args...)
	command.Tee = downloads
	stop := every(progressInterval, func() {
		b.say("%d modules downloaded, looking at what is to be compiled, %s so far", downloads.count(),
			time.Since(start).Round(time.Second))
	})
	defer stop()
	if err := process.Run(ctx, command); err != nil {
		return 0, err
	}
	return stale.count(), nil
}

// onlyHere are the large modules that no program of the root module has a package of (TestCheapFlagsSplitNoCache).
var onlyHere = []string{"k8s.io/kubernetes", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
	"k8s.io/cloud-provider", "k8s.io/kube-aggregator", "go.etcd.io", "github.com/google/cel-go", "github.com/antlr4-go"}

// buildFlags leave the state of the checkout out of the binary, which so is the same wherever it is built. They spare
// the compiler debugging information, and in packages that are compiled for control planes alone inlining, too: 40 % of
// its time there. The others are compiled with the flags of the Makefile, once for all programs.
func buildFlags() []string {
	flags := []string{"-buildvcs=false", process.NoDWARF}
	for _, module := range onlyHere {
		flags = append(flags, "-gcflags="+module+"/...=-l -dwarf=false")
	}
	return flags
}

// linkerFlags omit the information for debuggers, and set the version as Kubernetes' own build scripts do.
func linkerFlags(kubernetes string) string {
	const pkg = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", pkg, kubernetes,
		major, minor)
}

// goCommand runs the go command in the nested module. Without cgo, so that a C compiler
// is not needed and its presence makes no difference.
func (b build) goCommand(stdout io.Writer, args ...string) process.Command {
	return process.Command{
		Name: "go " + args[0], Path: "go", Args: args, Dir: b.module,
		Env: []string{"CGO_ENABLED=0", "GOWORK=off", process.CompilerMemory}, Stdout: stdout,
	}
}

func (b build) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "control plane "+b.name+": "+format+"\n", args...)
}

// progressInterval is how often a build says how far it is.
const progressInterval = 5 * time.Second

// lineCounter counts the lines that are written to it.
type lineCounter struct{ lines atomic.Int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}

func (c *lineCounter) count() int { return int(c.lines.Load()) }

// describe returns the number of packages begun, out of total. The last is the program itself, whose linking takes a
// while.
func (c *lineCounter) describe(total int) string {
	done := c.count()
	if done >= total {
		return "linking"
	}
	return fmt.Sprintf("%d of %d packages", done, total)
}

// every calls say again and again until stop is called, which returns when no call runs any more.
func every(interval time.Duration, say func()) (stop func()) {
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				say()
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); running.Wait() }
}
