package request

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestSourceOfData(t *testing.T) {
	group, other, empty := snapshotGroup, "example.com", ""
	refOnly := func(namespace *string, group *string, kind string) func(*Facts) {
		return func(f *Facts) {
			f.Claim.Spec.DataSource = nil
			f.Claim.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: group, Kind: kind, Name: "source",
				Namespace: namespace}
		}
	}
	own, foreign := "team", "other-team"
	refusals(t, map[string]refusal{
		"the source alone, as before there were references": {facts(cloned(),
			func(f *Facts) { f.Claim.Spec.DataSourceRef = nil }), ""},
		"the source goes before the reference": {facts(cloned(),
			func(f *Facts) { f.Claim.Spec.DataSourceRef.Name = "x" }), ""},
		"the reference alone": {facts(cloned(), refOnly(nil, nil, "PersistentVolumeClaim")),
			""},
		"a reference with an empty namespace": {facts(cloned(),
			refOnly(&empty, nil, "PersistentVolumeClaim")), ""},
		"a reference with the claim's namespace": {facts(cloned(),
			refOnly(&own, &empty, "PersistentVolumeClaim")), ""},
		"another namespace": {facts(cloned(),
			refOnly(&foreign, nil, "PersistentVolumeClaim")), ReasonClaimUnsupported},
		"another namespace, for a populator": {facts(refOnly(&foreign, &other, "Backup")),
			ReasonClaimUnsupported},
		"a kind for a populator": {facts(refOnly(nil, &other, "Backup")), ReasonLeftToPopulator},
		"another kind of the group of snapshots": {facts(fromSource(&group, "VolumeGroupSnapshot", "snap")),
			ReasonLeftToPopulator},
		"a claim of another group, for populator": {facts(fromSource(&other, "PersistentVolumeClaim", "source")),
			ReasonLeftToPopulator},
		"a snapshot of no group": {facts(fromSource(nil, "VolumeSnapshot", "snap")),
			ReasonClaimInvalid},
		"a snapshot of another group": {facts(fromSource(&other, "VolumeSnapshot", "snap")),
			ReasonClaimInvalid},
		"a snapshot without a name": {facts(fromSource(&group, "VolumeSnapshot", "")),
			ReasonClaimInvalid},
	})
}

func TestSourceOf(t *testing.T) {
	group, other := snapshotGroup, "example.com"
	for name, c := range map[string]struct {
		edit func(*Facts)
		want volume.SourceRef
	}{
		"none": {func(f *Facts) { f.Claim.Spec.DataSource, f.Claim.Spec.DataSourceRef = nil, nil },
			volume.SourceRef{}},
		"a populator's": {fromSource(&other, "Backup", "backup"), volume.SourceRef{}},
		"a snapshot": {fromSource(&group, "VolumeSnapshot", "snap"),
			volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "team", Name: "snap"}},
	} {
		f := facts(c.edit)
		got := SourceOf(f.Claim)
		if got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		// The object that was read is of the other kind.
		read := Source{Claim: &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "c-1"}}}
		if withUID(got, read).UID != "" {
			t.Errorf("%s has the UID of a claim", name)
		}
	}
	clone := volume.SourceRef{Kind: volume.SourceClaim}
	if withUID(clone, Source{Snapshot: &Snapshot{UID: "s-1"}}).UID != "" {
		t.Error("a claim has the UID of a snapshot")
	}
}

func TestRestore(t *testing.T) {
	block, filesystem := v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem
	ofBlock := func(allow string) func(*Snapshot) {
		return func(s *Snapshot) { s.Content.SourceMode, s.Content.AllowModeChange = &block, allow }
	}
	refusals(t, map[string]refusal{
		"ready":                        {facts(restored()), ""},
		"not there":                    {facts(restored(), func(f *Facts) { f.Source.Snapshot = nil }), ReasonSourceMissing},
		"another was read":             {facts(restored(func(s *Snapshot) { s.Name = "x" })), ReasonSourceMissing},
		"one of another namespace":     {facts(restored(func(s *Snapshot) { s.Namespace = "x" })), ReasonSourceMissing},
		"being deleted":                {facts(restored(func(s *Snapshot) { s.Deleting = true })), ReasonSourceDeleting},
		"being deleted, and protected": {facts(restored(func(s *Snapshot) { s.Deleting, s.Protected = true, true })), ""},
		"protected":                    {facts(restored(func(s *Snapshot) { s.Protected = true })), ""},
		"no content yet":               {facts(restored(func(s *Snapshot) { s.ContentName = "" })), ReasonSourceNotReady},
		"its content is not there":     {facts(restored(func(s *Snapshot) { s.Content = nil })), ReasonSourceMissing},
		"another content was read":     {facts(restored(func(s *Snapshot) { s.Content.Name = "x" })), ReasonSourceMissing},
		"the content is another's": {facts(restored(func(s *Snapshot) { s.Content.Snapshot.Namespace = "x" })),
			ReasonSourceNotReady},
		"the content is a namesake's": {facts(restored(func(s *Snapshot) { s.Content.SnapshotUID = "x" })),
			ReasonSourceNotReady},
		"another driver's":             {facts(restored(func(s *Snapshot) { s.Content.Driver = "x" })), ReasonSourceUnfit},
		"not ready":                    {facts(restored(func(s *Snapshot) { s.Ready = false })), ReasonSourceNotReady},
		"ready without a handle":       {facts(restored(func(s *Snapshot) { s.Content.Handle = "" })), ReasonSourceNotReady},
		"of the same size":             {facts(restored(), size("4Gi")), ""},
		"larger than asked for":        {facts(restored(), size("3Gi")), ReasonSourceUnfit},
		"of unknown size":              {facts(restored(func(s *Snapshot) { s.RestoreSize = nil }), size("1")), ""},
		"of another mode":              {facts(restored(ofBlock(""))), ReasonSourceUnfit},
		"of another mode, not allowed": {facts(restored(ofBlock("false"))), ReasonSourceUnfit},
		"of another mode, mumbled":     {facts(restored(ofBlock("yes"))), ReasonSourceUnfit},
		"of another mode, allowed":     {facts(restored(ofBlock("true"))), ""},
		"of another mode, always fine": {facts(restored(ofBlock("")),
			func(f *Facts) { f.Settings.AllowModeConversion = true }), ""},
		"of block, as asked for": {facts(restored(ofBlock("")), blockMode), ""},
		"of unknown mode":        {facts(restored(func(s *Snapshot) { s.Content.SourceMode = nil }), blockMode), ""},
		"a claim of no mode, wants one": {facts(restored(ofBlock("")), func(f *Facts) { f.Claim.Spec.VolumeMode = nil }),
			ReasonSourceUnfit},
		"a claim of no mode, fits": {facts(restored(func(s *Snapshot) { s.Content.SourceMode = &filesystem }),
			func(f *Facts) { f.Claim.Spec.VolumeMode = nil }), ""},
	})
	o, err := NewPlan(facts(restored()))
	if err != nil || o.Request.VolumeContentSource.GetSnapshot().GetSnapshotId() != "snap-1" ||
		o.Source != (volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "team", Name: "snap", UID: "s-1"}) {
		t.Errorf("source %v, %+v, %v", o.Request.GetVolumeContentSource(), o.Source, err)
	}
}

func TestClone(t *testing.T) {
	type claim = v1.PersistentVolumeClaim
	type pv = v1.PersistentVolume
	block := v1.PersistentVolumeBlock
	refusals(t, map[string]refusal{
		"bound": {facts(cloned()), ""},
		"bound, of a class of its own": {facts(cloned(func(c *claim, _ *pv) {
			slow := "slow"
			c.Spec.StorageClassName = &slow
		})), ""},
		"not there":        {facts(cloned(), func(f *Facts) { f.Source.Claim = nil }), ReasonSourceMissing},
		"another was read": {facts(cloned(func(c *claim, _ *pv) { c.Name = "x" })), ReasonSourceMissing},
		"one of another namespace": {facts(cloned(func(c *claim, _ *pv) { c.Namespace = "x" })),
			ReasonSourceMissing},
		"being deleted": {facts(cloned(func(c *claim, _ *pv) { c.DeletionTimestamp = &metav1.Time{} })),
			ReasonSourceDeleting},
		"not bound": {facts(cloned(func(c *claim, _ *pv) { c.Status.Phase = v1.ClaimPending })),
			ReasonSourceNotReady},
		"lost its volume": {facts(cloned(func(c *claim, _ *pv) { c.Status.Phase = v1.ClaimLost })),
			ReasonSourceNotReady},
		"bound to no name": {facts(cloned(func(c *claim, _ *pv) { c.Spec.VolumeName = "" })),
			ReasonSourceNotReady},
		"its PV is not there": {facts(cloned(), func(f *Facts) { f.Source.PV = nil }), ReasonSourceMissing},
		"another PV was read": {facts(cloned(func(_ *claim, o *pv) { o.Name = "x" })), ReasonSourceMissing},
		"the PV is a namesake's": {facts(cloned(func(_ *claim, o *pv) { o.Spec.ClaimRef.UID = "x" })),
			ReasonSourceNotReady},
		"the PV is another namespace's": {facts(cloned(func(_ *claim, o *pv) { o.Spec.ClaimRef.Namespace = "x" })),
			ReasonSourceNotReady},
		"the PV has no claim": {facts(cloned(func(_ *claim, o *pv) { o.Spec.ClaimRef = nil })),
			ReasonSourceNotReady},
		"the PV is not bound": {facts(cloned(func(_ *claim, o *pv) { o.Status.Phase = v1.VolumeReleased })),
			ReasonSourceNotReady},
		"another driver's": {facts(cloned(func(_ *claim, o *pv) { o.Spec.CSI.Driver = "x" })),
			ReasonSourceUnfit},
		"no driver's": {facts(cloned(func(_ *claim, o *pv) { o.Spec.CSI = nil })),
			ReasonSourceUnfit},
		"without a handle": {facts(cloned(func(_ *claim, o *pv) { o.Spec.CSI.VolumeHandle = "" })),
			ReasonSourceUnfit},
		"of the same size":      {facts(cloned(), size("4Gi")), ""},
		"larger than asked for": {facts(cloned(), size("3Gi")), ReasonSourceUnfit},
		"a device for a filesystem": {facts(cloned(func(_ *claim, o *pv) { o.Spec.VolumeMode = &block })),
			ReasonSourceUnfit},
		"a filesystem for a device": {facts(cloned(), blockMode), ReasonSourceUnfit},
		"a device for a device": {facts(cloned(func(_ *claim, o *pv) { o.Spec.VolumeMode = &block }),
			blockMode), ""},
		"neither says anything of a mode": {facts(cloned(), func(f *Facts) { f.Claim.Spec.VolumeMode = nil }), ""},
	})
	o, err := NewPlan(facts(cloned()))
	if err != nil || o.Request.VolumeContentSource.GetVolume().GetVolumeId() != "vol-source" ||
		o.Source != (volume.SourceRef{Kind: volume.SourceClaim, Namespace: "team", Name: "source", UID: "c-1"}) {
		t.Errorf("source %v, %+v, %v", o.Request.GetVolumeContentSource(), o.Source, err)
	}
}
