//go:build unix

package deploy

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// endpointOf returns the only endpoint of a monitor.
func endpointOf(t *testing.T, monitor document, field string) map[string]any {
	t.Helper()
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", field)
	if len(endpoints) != 1 {
		t.Fatalf("%s: %d endpoints", monitor, len(endpoints))
	}
	endpoint, _ := endpoints[0].(map[string]any)
	return endpoint
}

// TestServiceMonitorHasAService with the port of the metrics, with webhooks and without them. Without the monitor, the
// Service has no such port.
func TestServiceMonitorHasAService(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		ports  []string
	}{
		"alone":         {guardValues()["with a ServiceMonitor"], []string{"http"}},
		"with webhooks": {append(guardValues()["with a ServiceMonitor"], "webhooks.pods=true"), []string{"webhooks", "http"}},
		"webhooks":      {[]string{"webhooks.pods=true"}, []string{"webhooks"}},
	} {
		all := render(t, c.values...)
		service := findAs[v1.Service](t, all, "Service", guard)
		var ports []string
		for _, port := range service.Spec.Ports {
			if port.TargetPort.StrVal != port.Name {
				t.Errorf("%s: port %s is that of %s", name, port.Name, port.TargetPort.String())
			}
			ports = append(ports, port.Name)
		}
		if !reflect.DeepEqual(ports, c.ports) {
			t.Errorf("%s: the Service has the ports %q, want %q", name, ports, c.ports)
		}
		if name == "webhooks" {
			continue
		}
		monitor := find(t, all, "ServiceMonitor", guard)
		endpoint := endpointOf(t, monitor, "endpoints")
		if endpoint["port"] != "http" || endpoint["interval"] != "30s" || monitor.GetLabels()["release"] != "prometheus" {
			t.Errorf("%s: %s", name, pretty(monitor))
		}
		labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		if len(labels) == 0 || service.Labels["app"] != labels["app"] {
			t.Errorf("%s: the monitor selects %v, and the Service has %v", name, labels, service.Labels)
		}
	}
}

// keepsSidecar returns the relabeling that drops the targets of other containers. It also drops a target whose port no
// container declares, since that has no label for alerts to select by.
func keepsSidecar(t *testing.T) []any {
	t.Helper()
	return []any{map[string]any{"action": "keep", "regex": snippet(t).Name,
		"sourceLabels": []any{"__meta_kubernetes_pod_container_name"}}}
}

// TestSidecarServiceMonitorScrapesOneContainer: its Service selects the driver's pods, and has the number of the port
// of csi-reclaimer, which no other container of the pod can have.
func TestSidecarServiceMonitorScrapesOneContainer(t *testing.T) {
	const port = "container.httpPort=8081"
	all := renderCar(t, append(carValues()["with a ServiceMonitor"], port)...)
	service := findAs[v1.Service](t, all, "Service", "mock-csi-reclaimer")
	if want := map[string]string{"app": "disk"}; !reflect.DeepEqual(service.Spec.Selector, want) ||
		service.Spec.ClusterIP != v1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service is %+v", service.Spec)
	}
	if ports := service.Spec.Ports; len(ports) != 1 || ports[0].Name != "http" ||
		ports[0].Port != 8081 || ports[0].TargetPort.IntVal != 8081 {
		t.Errorf("its ports are %+v", ports)
	}
	if c := snippet(t, port); c.Ports[0].ContainerPort != 8081 || !slices.Contains(c.Args, "--http-endpoint=:8081") {
		t.Errorf("the container has the ports %+v, and the arguments %q", c.Ports, c.Args)
	}
	monitor := find(t, all, "ServiceMonitor", "mock-csi-reclaimer")
	want := map[string]any{"port": "http", "interval": "30s", "relabelings": keepsSidecar(t),
		"authorization": map[string]any{"credentials": map[string]any{"name": "prometheus", "key": "token"}}}
	if endpoint := endpointOf(t, monitor, "endpoints"); !reflect.DeepEqual(endpoint, want) {
		t.Errorf("scrapes %s", pretty(endpoint))
	}
	labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for key, value := range labels {
		if service.Labels[key] != value {
			t.Errorf("selects %v, and the Service has %v", labels, service.Labels)
		}
	}
	if len(labels) == 0 || monitor.GetLabels()["release"] != "prometheus" {
		t.Errorf("selects %v, and has the labels %v", labels, monitor.GetLabels())
	}
}

// TestSidecarPodMonitorScrapesOneContainer of the driver's pods, whose other containers may have such a port, too.
func TestSidecarPodMonitorScrapesOneContainer(t *testing.T) {
	monitor := find(t, renderCar(t, carValues()["with monitoring"]...), "PodMonitor", "mock-csi-reclaimer")
	endpoint := endpointOf(t, monitor, "podMetricsEndpoints")
	if port := snippet(t).Ports[0].Name; endpoint["port"] != port || endpoint["interval"] != "30s" {
		t.Errorf("scrapes port %v every %v, want %s", endpoint["port"], endpoint["interval"], port)
	}
	if !reflect.DeepEqual(endpoint["relabelings"], keepsSidecar(t)) {
		t.Errorf("relabels by %s", pretty(endpoint["relabelings"]))
	}
	if want := map[string]any{"credentials": map[string]any{"name": "prometheus",
		"key": "token"}}; !reflect.DeepEqual(endpoint["authorization"], want) {
		t.Errorf("sends %s", pretty(endpoint["authorization"]))
	}
	labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	if want := map[string]string{"app": "disk"}; !reflect.DeepEqual(labels, want) || monitor.GetNamespace() != carHome {
		t.Errorf("selects %v in %s", labels, monitor.GetNamespace())
	}
	endpoint = endpointOf(t, find(t, renderCar(t, "monitoring.podMonitor.enabled=true",
		"monitoring.podMonitor.matchLabels.app=disk"), "PodMonitor", "mock-csi-reclaimer"), "podMetricsEndpoints")
	if endpoint["authorization"] != nil {
		t.Errorf("sends %s without a Secret", pretty(endpoint["authorization"]))
	}
}

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
