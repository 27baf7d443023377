package reclaim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// The library adds no flags, global registries, process exits or component machinery to a vendor's program.

func TestLibraryImports(t *testing.T) {
	direct := goList(t, "-f", `{{join .Imports "\n"}}`, ".")
	const module = "github.com/csi-reclaimer/csi-reclaimer/"
	const own, inner = module + "pkg/", module + "internal/"
	for _, path := range direct {
		if strings.Contains(path, ".") && !slices.Contains([]string{
			own + "csidriver/migration", own + "csidriver/errclass", inner + "engine/reclaim",
			inner + "engine/pvclaim", own + "leadership", inner + "events", inner + "spans", inner + "text",
			inner + "kube", inner + "controller",
			own + "permission", own + "volume", inner + "settings", inner + "panics",
			inner + "translation", inner + "secretref",
			"github.com/prometheus/client_golang/prometheus", "golang.org/x/sync/errgroup",
			"go.opentelemetry.io/otel/trace",
			"k8s.io/api/authorization/v1", "k8s.io/api/coordination/v1", "k8s.io/api/core/v1", "k8s.io/api/storage/v1",
			"k8s.io/apimachinery/pkg/api/errors", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/runtime",
			"k8s.io/apimachinery/pkg/types",
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/kubernetes/typed/authorization/v1", "k8s.io/client-go/rest",
			"k8s.io/client-go/tools/cache",
			"k8s.io/client-go/tools/record",
			"k8s.io/klog/v2", "k8s.io/utils/clock",
		}, path) {
			t.Errorf("imports %s, which is not listed here: is it worth its weight in every vendor's program?", path)
		}
	}
	for _, path := range goList(t, "-deps", ".") {
		for _, unwanted := range []string{"github.com/spf13/", "k8s.io/component-base", "k8s.io/kubernetes/",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.opentelemetry.io/otel/sdk",
			"go.opentelemetry.io/otel/exporters"} {
			if strings.HasPrefix(path, unwanted) {
				t.Errorf("pulls in %s", path)
			}
		}
	}
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out := must.Get(exec.Command("go", append([]string{"list"}, args...)...).Output())(t)
	return strings.Fields(string(out))
}

func TestLibraryForbiddenCalls(t *testing.T) {
	unwanted := map[string][]string{
		"os": {"Exit"}, "log": nil, "flag": nil,
		"klog":       {"Fatal", "Fatalf", "Fatalln", "FlushAndExit", "Exit", "Exitf", "InitFlags", "SetLogger"},
		"prometheus": {"MustRegister", "Register", "DefaultRegisterer", "DefaultGatherer"},
		"signal":     nil,
		"otel":       nil,
	}
	checked := 0
	for _, dir := range goList(t, "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}`, ".",
		"../provision", "../csidriver") {
		entries := must.Get(os.ReadDir(dir))(t)
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				continue
			}
			checked++
			file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := selector.X.(*ast.Ident); ok && of.Obj == nil {
					names, listed := unwanted[of.Name]
					if listed && (names == nil || slices.Contains(names, selector.Sel.Name)) {
						t.Errorf("%s uses %s.%s", name, of.Name, selector.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if checked < 100 {
		t.Errorf("only %d files were read", checked)
	}
}
