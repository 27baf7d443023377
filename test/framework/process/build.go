//go:build unix

package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

// Build compiles one of the project's main packages, given relative to the module's root
// ("./cmd/csi-reclaimer") or as an import path, and returns the path of the binary.
// goFlags are flags of go build, for example "-race". The output of the go command is
// written to progress, which may be nil.
//
// Packages of the root module are compiled with the flags of its Makefile, so that tests start what users build.
//
// The first call in the life of a program runs the go command, which does nothing for an up-to-date binary; later calls
// return its binary. Any number of programs may build at once: they take turns, and a binary in use is replaced, never
// overwritten. Binaries lie in .build/bin under the module's root, named by the last element of their package path,
// which therefore must be unique among the project's programs.
func Build(ctx context.Context, pkg string, progress io.Writer, goFlags ...string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	entry, _ := built.LoadOrStore(binaryName(pkg, goFlags), &build{})
	b, _ := entry.(*build)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.binary == "" {
		b.binary, err = BuildIn(ctx, root, pkg, progress, goFlags...)
	}
	return b.binary, err
}

// built has a build for the name of each binary.
var built sync.Map

// build is a binary of this program's module, once it was compiled without an error.
type build struct {
	mu     sync.Mutex
	binary string
}

// BuildIn is Build for the module with that root, such as another version of the project. It always runs the go
// command.
func BuildIn(ctx context.Context, root, pkg string, progress io.Writer, goFlags ...string) (binary string, err error) {
	binary = filepath.Join(root, ".build", "bin", binaryName(pkg, goFlags))
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	lock, err := filelock.Acquire(ctx, binary+".lock", nil)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	flags := goFlags
	if own, err := ModuleRoot(); err == nil && own == root && strings.HasPrefix(pkg, "./") {
		made, err := makefileFlags(ctx, root)
		if err != nil {
			return "", fmt.Errorf("build %s: %w", pkg, err)
		}
		flags = slices.Concat(made, goFlags)
	}
	if err := buildTo(ctx, root, pkg, binary, progress, flags); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	return binary, nil
}

// RaceFlags returns the flags with which a test compiles the programs that it starts: those with the race detector
// where the test has it. Such a program ends with an error when it has raced, which fails the test that stops it.
func RaceFlags() []string {
	if raceEnabled {
		return []string{"-race"}
	}
	return nil
}

// buildTo brings binary up to date. The go command sees a second name of the present binary: it leaves
// that alone when it is up to date and otherwise puts a new file in its place, which one
// rename then makes the binary.
func buildTo(ctx context.Context, root, pkg, binary string, progress io.Writer, goFlags []string) error {
	next := binary + ".next"
	if err := removeIfExists(next); err != nil {
		return err
	}
	if err := os.Link(binary, next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	args := append([]string{"build", "-o", next}, goFlags...)
	cgo := "CGO_ENABLED=0" // one compilation of a package, whether the machine has a C compiler or not
	if slices.Contains(goFlags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	c := Command{Name: "go build", Path: "go", Args: append(args, pkg), Dir: root, Tee: progress,
		Env: []string{cgo, CompilerMemory}}
	if err := Run(ctx, c); err != nil {
		return errors.Join(err, removeIfExists(next))
	}
	if err := os.Rename(next, binary); err != nil {
		return err
	}
	return removeIfExists(next) // renaming a file onto another name of itself leaves both
}

// binaryName is the last element of the package path, with a mark where flags make it another binary.
func binaryName(pkg string, goFlags []string) string {
	name := path.Base(pkg)
	switch {
	case len(goFlags) == 0:
		return name
	case len(goFlags) == 1 && goFlags[0] == "-race":
		return name + "-race"
	}
	sum := sha256.Sum256([]byte(strings.Join(goFlags, "\x00")))
	return name + "-" + hex.EncodeToString(sum[:4])
}

func removeIfExists(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// modulePath is the path of the module that ModuleRoot finds.
const modulePath = "github.com/csi-reclaimer/csi-reclaimer"

// ModuleRoot returns the folder of the project's go.mod, looked for from the working directory
// upwards. Nested modules on the way have other names and are passed by.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find module root: %w", err)
		}
		for line := range bytes.Lines(gomod) {
			if string(bytes.TrimSpace(line)) == "module "+modulePath {
				return dir, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find module root: %q is not inside module %s", start, modulePath)
		}
	}
}

// TB is the part of testing.TB that functions ForTest need, so that programs do not link package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// RootForTest is ModuleRoot for a test, which fails where the folder is not found.
func RootForTest(t TB) string {
	t.Helper()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return root
}

// ModuleDir returns the folder of a module in the version that the project's go.mod requires, so that the module's data
// needs no copy here. PATH@VERSION names a module that need not be required. A module missing on the machine is
// downloaded and checked against go.sum or, without an entry there, against the checksum database.
func ModuleDir(ctx context.Context, path string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	var answer bytes.Buffer
	err = Run(ctx, Command{Name: "go mod download", Path: "go", Args: []string{"mod", "download", "-json", path},
		Dir: root,
		Env: []string{"GOWORK=off"}, Stdout: &answer})
	var module struct{ Dir, Error string }
	if decoded := json.Unmarshal(answer.Bytes(), &module); decoded == nil && module.Error != "" {
		return "", fmt.Errorf("find module %s: %s", path, module.Error) // says more than the exit status
	}
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	if module.Dir == "" {
		return "", fmt.Errorf("find module %s: the go command names no folder", path)
	}
	return module.Dir, nil
}

// CompilerMemory, in the environment of the go command, lets the compiler collect garbage less often: a fifth less
// processor time for more memory, and the same packages.
const CompilerMemory = "GOGC=400"

// NoDWARF is the flag of go build with which the Makefile spares the compiler debugging information. Where it differs,
// a package is compiled again.
const NoDWARF = "-gcflags=all=-dwarf=false"

// makefileFlags returns the flags of go build with which the Makefile in root builds the programs.
func makefileFlags(ctx context.Context, root string) ([]string, error) {
	var out bytes.Buffer
	err := Run(ctx, Command{Name: "make build-flags", Path: "make",
		Args: []string{"--silent", "--no-print-directory", "-C", root, "build-flags"}, Stdout: &out})
	if err != nil {
		return nil, fmt.Errorf("read the flags of the Makefile: %w", err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n"), nil
}
