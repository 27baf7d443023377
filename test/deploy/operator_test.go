//go:build unix

package deploy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// operatorModule has the kinds of prometheus-operator as CRDs. Its files are all that is used: 4 MB, and nothing of it
// is compiled.
const operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// installOperatorsKinds installs the kinds of prometheus-operator that the charts render, until the test ends.
func installOperatorsKinds(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	module, err := process.ModuleDir(ctx, operatorModule)
	must(t, err)
	for _, resource := range []string{"podmonitors", "prometheusrules", "servicemonitors"} {
		text, err := os.ReadFile(filepath.Join(module, "example", "prometheus-operator-crd",
			"monitoring.coreos.com_"+resource+".yaml"))
		must(t, err)
		for _, crd := range documents(t, resource, text) {
			installKind(t, crd, crd.text)
		}
	}
}

// installKind installs a CustomResourceDefinition until the test ends.
func installKind(t *testing.T, crd document, text []byte) {
	t.Helper()
	must(t, apply(patiently(t), crd, text, "", false))
	forget(t, func(ctx context.Context) error { return removeDocument(ctx, crd) })
}

// TestPrometheusOperatorAcceptsRules validates the monitors and the PrometheusRule against the operator's CRDs, and
// checks that invalid ones are found.
func TestPrometheusOperatorAcceptsRules(t *testing.T) {
	makeGuardHome(t)
	installOperatorsKinds(t)
	ctx := patiently(t)
	must(t, makeNamespace(ctx, carHome))
	wrong := map[string]struct{ from, to string }{
		"PodMonitor":     {"podMetricsEndpoints:", "podMetricEndpoints:"},
		"PrometheusRule": {"expr:", "query:"},
		"ServiceMonitor": {"endpoints:", "endpoint:"},
	}
	all := slices.Concat(render(t, guardValues()["with monitoring"]...),
		render(t, guardValues()["with a ServiceMonitor"]...))
	for _, d := range slices.Concat(renderCar(t, carValues()["with monitoring"]...),
		renderCar(t, carValues()["with a ServiceMonitor"]...)) {
		if !strings.HasSuffix(d.GetKind(), "Monitor") {
			continue
		}
		if err := applyServed(t, d); err != nil {
			t.Errorf("csi-reclaimer's: %s: %v", d, err)
		}
	}
	for _, d := range all {
		change, is := wrong[d.GetKind()]
		if !is {
			continue
		}
		delete(wrong, d.GetKind())
		if err := applyServed(t, d); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		text := bytes.ReplaceAll(d.text, []byte(change.from), []byte(change.to))
		if err := apply(ctx, d, text, guardHome, true); err == nil || !strings.Contains(err.Error(),
			strings.TrimSuffix(change.to, ":")) {
			t.Errorf("%s with %q for %q: %v", d, change.to, change.from, err)
		}
	}
	for kind := range wrong {
		t.Errorf("the chart renders no %s", kind)
	}
}

// applyServed tries an object in a dry run, once the API server serves its kind: that is some moments after it has the
// CRD.
func applyServed(t *testing.T, d document) (err error) {
	t.Helper()
	until(t, d.GetKind()+" is served", func() bool {
		err = apply(patiently(t), d, d.text, guardHome, true)
		return !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err)
	})
	return err
}
