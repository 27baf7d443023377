package statefulset

import (
	"fmt"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// BenchmarkMemory measures the record of a claim and of its pod, without the tables of the caches.
func BenchmarkMemory(b *testing.B) {
	const sets, replicas = 1000, 3
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var kept []any
		x := newIndex()
		for n := range sets * replicas {
			pod := fmt.Sprintf("database-%d-%d", n/replicas, n%replicas)
			claimed := "data-" + pod
			c, _, err := recordClaim(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "production",
				Name: claimed, UID: newUID(), ResourceVersion: "123456789"}}, false)
			if err != nil {
				b.Fatal(err)
			}
			x.claim(c, true)
			p, _, err := recordPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: pod, UID: newUID()},
				Spec: v1.PodSpec{Volumes: []v1.Volume{uses(claimed)}}}, false)
			if err != nil {
				b.Fatal(err)
			}
			x.pod(nil, p)
			kept = append(kept, c, p)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(sets*replicas), "B/replica")
		runtime.KeepAlive(kept)
		runtime.KeepAlive(x)
	}
}

func newUID() types.UID { return uuid.NewUUID() }
