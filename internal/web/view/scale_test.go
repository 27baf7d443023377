package view

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

func many(n int) Facts {
	pvs := make([]*v1.PersistentVolume, 0, n)
	claims := make([]*v1.PersistentVolumeClaim, 0, n)
	for i := range n {
		name := fmt.Sprintf("pv-%05d", i)
		pvs = append(pvs, newPV(name, func(o *v1.PersistentVolume) {
			o.Status.Phase, o.Spec.ClaimRef.Name = v1.VolumeBound, name
		}))
		claims = append(claims, newClaim(name, func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = name }))
	}
	f := cluster(pvs...)
	f.AllClaims = explain.Found(claims)
	return f
}

// BenchmarkTables measures the cost of one change with ten thousand PVs.
func BenchmarkTables(b *testing.B) {
	f := many(10000)
	for b.Loop() {
		indexed := f
		indexed.ClusterFacts = f.Indexed()
		if rows := RowsOf(indexed); len(rows) != 20000 || len(SummaryOf(indexed, rows).Drivers) != 1 {
			b.Fatal("rows are missing")
		}
	}
}
