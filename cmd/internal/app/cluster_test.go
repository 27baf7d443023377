package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// kubeconfig writes a kubeconfig file for an API server and returns its path.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\nusers: [{name: a, "+
		"user: {token: secret}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", server)
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestClusterConfig(t *testing.T) {
	one, other := kubeconfig(t, "https://one.example.com"), kubeconfig(t, "https://other.example.com")
	for name, c := range map[string]struct {
		variable, flags string
		host, token     string
		err             string
	}{
		"a file that the flag names":        {"", "--kubeconfig=" + one, "https://one.example.com", "secret", ""},
		"the variable names one":            {one, "", "https://one.example.com", "secret", ""},
		"the flag goes before the variable": {other, "--kubeconfig=" + one, "https://one.example.com", "secret", ""},
		"--master goes before the file": {one, "--master=https://master.example.com", "https://master.example.com",
			"secret", ""},
		"--master alone": {"", "--master=https://master.example.com", "https://master.example.com", "",
			""},
		"a file that is not there":    {"", "--kubeconfig=/nowhere", "", "", "--kubeconfig=/nowhere"},
		"the variable's is not there": {"/nowhere", "", "", "", "KUBECONFIG=/nowhere"},
		"nothing, outside of a pod":   {"", "", "", "", "set --kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.variable)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			o := must.Get(parse(c.flags))(t)
			config, err := o.Config("program")
			switch {
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("the error is %v", err)
			case c.err == "" && (err != nil || config.Host != c.host || config.BearerToken != c.token):
				t.Errorf("%v, %v", config, err)
			}
		})
	}
}

func TestClusterRateLimit(t *testing.T) {
	file := kubeconfig(t, "https://one.example.com")
	for flags, want := range map[string]struct {
		qps   float32
		burst int
		ok    bool
	}{
		"":                                    {0, 10, true},
		"--kube-api-qps=50":                   {50, 10, true},
		"--kube-api-burst=7":                  {0, 7, true},
		"--kube-api-qps=5 --kube-api-burst=7": {5, 7, true},
		"--kube-api-qps=-1":                   {0, 10, true},
		"--kube-api-qps=5 --kube-api-burst=0": {0, 0, false},
	} {
		o := must.Get(parse(strings.TrimSpace("--kubeconfig=" + file + " " + flags)))(t)
		if err := o.Validate(); (err == nil) != want.ok {
			t.Errorf("%s: %v", flags, err)
		}
		config := must.Get(o.Config("program"))(t)
		if want.ok && (config.QPS != want.qps || config.Burst != want.burst) {
			t.Errorf("%s: %v a second, a burst of %d", flags, config.QPS, config.Burst)
		}
	}
}

// holder holds a Lease for so long.
type holder struct{ atomic.Int64 }

func (h *holder) Left() time.Duration { return time.Duration(h.Load()) }

// A replica that does not hold the Lease reports no Events, not even later.
func TestEventsOfLeader(t *testing.T) {
	sent := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct{ Reason, Message string }
		if json.NewDecoder(r.Body).Decode(&event) == nil {
			sent <- r.Method + " " + r.URL.Path + " " + event.Reason + " " + event.Message
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	var lease holder
	metrics := prometheus.NewRegistry()
	// As JSON, an Event can be read here.
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	recorder, stop, err := EventRecorder(t.Context(), config, &lease, "program", metrics)
	must.OK(t, err)
	pod := &v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "a", UID: "1"}
	recorder.Event(pod, v1.EventTypeNormal, "Waits", "too early")
	lease.Store(int64(time.Hour))
	recorder.Event(pod, v1.EventTypeNormal, "Leads", "now")
	if got, want := <-sent, "POST /api/v1/namespaces/ns/events Leads now"; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	stop()
	families := must.Get(metrics.Gather())(t)
	if len(families) != 1 || families[0].GetName() != "csi_reclaimer_events_dropped_total" {
		t.Errorf("metrics %v", families)
	}
}

func parse(flags string) (*ClusterOptions, error) {
	var o ClusterOptions
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Flags(fs, "")
	o.MasterFlag(fs)
	return &o, fs.Parse(strings.Fields(flags))
}
