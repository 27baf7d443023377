package leaks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// An in-tree PV is clear only while the driver lists the volume under its translated name.
func TestInTreePVUnclear(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	for id, unclear := range map[string]string{"aws://us-east-1a/vol-1": "", "aws://us-east-1a/vol-2": "PV pv"} {
		s := survey{listing: listing{volumes: map[string]Volume{"vol-1": {Handle: "vol-1"}}}, named: map[string]bool{},
			ofEntry: map[string]bool{}}
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id},
			}}}
		s.takePV(volume.Of(pv), driver)
		if s.unclear != unclear || s.named["vol-1"] != (unclear == "") || s.pvs != 1 {
			t.Errorf("%s: %+v", id, s)
		}
	}
}

// A CSI PV may name its volume otherwise than the driver lists it. The first check that does not list its volume proves
// nothing, because the volume may be newer than the list; the next one prevents suspicions.
func TestUnlistedCSIPVUnclear(t *testing.T) {
	const handle = "vol-1"
	local := &volume.Node{Name: "n1", Segments: map[string]string{"zone": "1"}}
	elsewhere := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn,
			Values: []string{"2"}}}}}}}
	for name, c := range map[string]struct {
		node  *volume.Node
		at    *v1.VolumeNodeAffinity
		again bool
		want  Reason
	}{
		"the same PV":           {nil, nil, true, reasonPVUnclear},
		"another PV each time":  {nil, nil, false, ReasonLeakSuspected},
		"a PV of this node":     {local, nil, true, reasonPVUnclear},
		"a PV of another node":  {local, elsewhere, true, ReasonLeakSuspected},
		"the same, for a whole": {nil, elsewhere, true, reasonPVUnclear},
	} {
		w := newWorld(t)
		w.blind, w.volumes[handle], w.volumes["other"] = true, true, true
		w.addPV("another", "other")
		w.addPV("pv", "otherwise").Spec.NodeAffinity = c.at
		a := w.auditor(func(cfg *Config) { cfg.Grace, cfg.Node = -1, c.node })
		if got := w.check(a, handle); got != ReasonSeenTooSeldom {
			t.Errorf("%s: first %q", name, got)
		}
		if !c.again {
			w.removePV("pv")
			w.addPV("pv-2", "otherwise")
		}
		if got := w.check(a, handle); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The tests below check each operand of a condition separately.

func TestIsEphemeral(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for handle, want := range map[string]bool{
		"csi-" + sum: true, sum: false, "csi-" + sum[1:]: false, "csi-" + sum[:63] + "x": false, "vol-" + sum: false,
	} {
		if got := isEphemeral(handle); got != want {
			t.Errorf("%s: got %v", handle, got)
		}
	}
}

func TestReportWithoutCompletionIsOld(t *testing.T) {
	var never time.Time
	c := situation{Remediation: Adopt, Fresh: true, Reported: true, Suspected: true, Others: absent,
		Own: ownPV{Read: true}}
	if step, why := decideRemediation(c, never.Add(time.Second)); step != refuse || why != whyReportOld {
		t.Errorf("got %v, %s", step, why)
	}
}

func TestSnapshotWithoutHandle(t *testing.T) {
	s := survey{snapshots: map[string]bool{}}
	s.takeSnapshot(snapshot.Content{Driver: driverName}, driverName)
	if len(s.snapshots) != 0 {
		t.Errorf("%v", s.snapshots)
	}
}

func TestPVWithoutHandleIsUnclear(t *testing.T) {
	s := survey{named: map[string]bool{}, ofEntry: map[string]bool{}}
	pv := &v1.PersistentVolume{}
	pv.Name = "pv"
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driverName}
	s.takePV(volume.Of(pv), driverName)
	if s.unclear != "PV pv" {
		t.Errorf("unclear: %q", s.unclear)
	}
}

func TestReadableEntryBesideUnreadableOne(t *testing.T) {
	entry := inflight.Located{}
	entry.Volume, entry.Claim.UID = "pvc-1", types.UID("1")
	s := survey{inFlight: []inflight.Located{entry}, unreadable: "an entry", snapshots: map[string]bool{}}
	if got := s.snapshot(Volume{Handle: "vol-pvc-1"}, suspicionRules{}).InFlight; got != present {
		t.Errorf("in flight: %v", got)
	}
}

// refusing returns one page, and fails the request for the next one.
type refusing struct {
	first, next error
	calls       int
}

func (d *refusing) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	d.calls++
	if r.GetStartingToken() == "" {
		return &csi.ListVolumesResponse{NextToken: "1"}, d.first
	}
	return nil, d.next
}

func TestOtherErrorsDoNotRestartList(t *testing.T) {
	refused := errclass.Mark(errclass.Unfit, errors.New("INVALID_ARGUMENT"))
	for name, d := range map[string]*refusing{
		"the first page fails with the error of an expired token": {first: expired()},
		"the second page fails otherwise":                         {next: refused},
	} {
		want := 1
		if d.next != nil {
			want = 2
		}
		if _, err := list(t.Context(), d, 2, 10); err == nil || errors.Is(err, errExpired) || d.calls != want {
			t.Errorf("%s: %d calls, %v", name, d.calls, err)
		}
	}
}

func TestBecause(t *testing.T) {
	entry := inflight.Located{}
	entry.Volume, entry.Claim.UID, entry.Claim.Namespace, entry.Claim.Name = "vol-1", types.UID("1"), "ns", "data"
	for want, c := range map[string]struct {
		v     Volume
		found survey
	}{
		"PV pv":         {Volume{Handle: "vol-1"}, survey{unclear: "PV pv"}},
		"claim ns/data": {Volume{Handle: "vol-1"}, survey{inFlight: []inflight.Located{entry}}},
		"an entry":      {Volume{Handle: "vol-1"}, survey{unreadable: "an entry"}},
		"a, b":          {Volume{Handle: "vol-1", Nodes: []string{"a", "b"}}, survey{}},
		"node-1":        {Volume{Handle: "Vol-1"}, survey{attached: map[string]string{"vol-1": "node-1"}}},
	} {
		if u := newTracker().judge(c.v, unaccounted{}, c.found, making{}, suspicionRules{}, noon); u.because != want {
			t.Errorf("%s: %q, want %q", u.verdict.Reason, u.because, want)
		}
	}
}

// An inline volume of an in-tree plugin counts by its translation.
func TestInlineVolumeOfInTreePlugin(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	a := inline(driver, "")[0]
	a.Spec.Source.InlineVolumeSpec.PersistentVolumeSource = v1.PersistentVolumeSource{
		AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-1"}}
	s := survey{listing: listing{volumes: map[string]Volume{"vol-1": {Handle: "vol-1"}}}, attached: map[string]string{}}
	s.takeAttachment(a, driver)
	if s.attached["vol-1"] != "node-1" || s.unclear != "" {
		t.Errorf("attached %v, unclear %q", s.attached, s.unclear)
	}
}

// The Lease with the lists of topologies has no entries.
func TestUnusableTopologiesHideNoEntry(t *testing.T) {
	t.Parallel()
	for lease, hides := range map[string]bool{"ns/log-topology": false, "ns/log-1": true} {
		var s survey
		s.takeLog(nil, []inflight.LocatedProblem{{Problem: inflight.Problem{Lease: lease, Err: inflight.ErrCopy}}}, "disk")
		if (s.unreadable != "") != hides {
			t.Errorf("%s: %q", lease, s.unreadable)
		}
	}
}
