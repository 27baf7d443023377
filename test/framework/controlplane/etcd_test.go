//go:build unix

package controlplane

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Suites share a machine, and each write would wait for its disk. So etcd syncs only while it creates its log.
func TestEtcdDoesNotWaitForDisk(t *testing.T) {
	for _, version := range Edges() {
		t.Run(string(version), func(t *testing.T) {
			cp := start(t, version, Options{NoControllerManager: true})
			maps := clientFor(t, cp.Admin()).CoreV1().ConfigMaps(metav1.NamespaceDefault)
			before := syncs(t, cp)
			for i := range 10 {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", i)}}
				if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if after := syncs(t, cp); after != before {
				t.Errorf("etcd synced its log: %s times before 10 writes, %s after", before, after)
			}
		})
	}
}

// syncs is how often etcd has waited for the disk to write its log, as its metrics have it.
func syncs(t *testing.T, cp *ControlPlane) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+cp.EtcdAddress()+"/metrics",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^etcd_disk_wal_fsync_duration_seconds_count (\d+)$`).FindSubmatch(metrics)
	if found == nil {
		t.Fatal("etcd's metrics do not say how often it has synced its log")
	}
	return string(found[1])
}
