package leaks

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// recorder stores Events in the world.
type recorder struct {
	record.FakeRecorder
	w *world
}

func (r *recorder) Event(o runtime.Object, kind, reason, message string) {
	of, _ := o.(*v1.ObjectReference)
	r.w.reported = append(r.w.reported, strings.Join(
		[]string{kind, reason, of.Kind, of.Namespace + "/" + of.Name, message}, " "))
}

func TestSuspicionAfterSightingsAndGrace(t *testing.T) {
	w := newWorld(t)
	a := w.auditor(func(c *Config) { c.Sightings = 3 })
	w.volumes["kept"], w.volumes["leak"] = true, true
	w.addPV("pv", "kept")
	for i, want := range []Reason{ReasonSeenTooSeldom, ReasonSeenTooSeldom, reasonSeenTooShort} {
		if got := w.check(a, "leak"); got != want {
			t.Fatalf("after %d leak checks: %s, want %s", i+1, got, want)
		}
	}
	w.clock.Step(time.Hour - time.Second)
	if got := w.check(a, "leak"); got != reasonSeenTooShort {
		t.Errorf("a second before the grace is over: %s", got)
	}
	w.clock.Step(time.Second)
	if got := w.check(a, "leak"); got != ReasonLeakSuspected {
		t.Errorf("after it: %s", got)
	}
	if got := w.check(a, "kept"); got != "" {
		t.Errorf("a volume with a PV: %s", got)
	}
	if len(w.reported) != 1 || !strings.HasPrefix(w.reported[0],
		"Warning LeakSuspected Lease / Nothing in the cluster accounts for it. 1 more volume of driver "+driverName+
			": the largest is leak (1Gi).") {
		t.Errorf("reported: %q, want one Event for all its sightings", w.reported)
	}
	delete(w.volumes, "leak")
	if got := w.check(a, "leak"); got != "" || a.Report().Suspected != 0 {
		t.Errorf("one that is not listed any more: %s", got)
	}
	w.volumes["leak"] = true
	if got := w.check(a, "leak"); got != ReasonSeenTooSeldom {
		t.Errorf("one that is listed again: %s", got)
	}
}

// TestReasonsAgainstSuspicion also checks that each reason resets the sightings.
func TestReasonsAgainstSuspicion(t *testing.T) {
	const handle = "Vol-1"
	claim := func(change func(*v1.PersistentVolumeClaim)) func(*world) {
		return func(w *world) { change(w.addClaim("c")) }
	}
	content := func(driver, handle string, making bool) func(*world) {
		return func(w *world) {
			w.contents["s"] = snapshot.Content{UID: "s", Driver: driver, Handle: handle, Making: making}
		}
	}
	inTree := func(driver, id string) func(*world) {
		return func(w *world) {
			pv := w.addPV("in-tree", "")
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id}}
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs",
				"pv.kubernetes.io/migrated-to": driver}
			w.addPV("another", "other")
		}
	}
	for sentence, c := range map[string]struct {
		so   func(*world)
		want Reason
	}{
		"a PV":                  {func(w *world) { w.addPV("pv", handle) }, ""},
		"a PV in other letters": {func(w *world) { w.addPV("pv", "vOL-1") }, ""},
		"a PV of another name":  {func(w *world) { w.addPV("pv", "other") }, ReasonLeakSuspected},
		"a PV of another driver": {func(w *world) { w.addPV("pv", handle).Spec.CSI.Driver = "another" },
			ReasonLeakSuspected},
		"a twin of a PV": {func(w *world) {
			w.addPV("pv", handle).Labels = map[string]string{"csi-reclaimer.io/twin-of": "x"}
		}, ""},
		"a PV of a foreign maker": {func(w *world) {
			w.addPV("pv", handle).Annotations = map[string]string{volume.AnnProvisionedBy: "another"}
		}, ""},
		"PVs without a listed volume":  {func(w *world) { w.addPV("pv", "spelled otherwise") }, reasonNamesDiffer},
		"a snapshot":                   {content(driverName, "vol-1", false), ""},
		"a snapshot of another driver": {content("another", handle, true), ReasonLeakSuspected},
		"an in-tree PV of an unknown volume": {inTree(driverName, "not one that can be translated"),
			reasonPVUnclear},
		"an in-tree PV of another driver": {inTree("another", "vol-2"), ReasonLeakSuspected},
		"an entry with its name": {func(w *world) { w.addEntry("x"); w.rename("VOL-1", "9") },
			reasonInFlight},
		"an entry with its claim's UID": {func(w *world) { w.addEntry("x"); w.rename("pvc-9", "ol-1") },
			reasonInFlight},
		"an entry of another volume": {func(w *world) { w.addEntry("x"); w.rename("pvc-9", "9") },
			ReasonLeakSuspected},
		"an entry of another driver": {func(w *world) { w.addEntry("x"); w.rename("vol-1", "9"); w.driverOf("x", "another") },
			ReasonLeakSuspected},
		"an entry that cannot be read":              {func(w *world) { w.problem(driverName) }, reasonIncomplete},
		"an entry of an unknown driver":             {func(w *world) { w.problem("") }, reasonIncomplete},
		"one of another driver that cannot be read": {func(w *world) { w.problem("another") }, ReasonLeakSuspected},
		"it is attached": {func(w *world) { w.inUse[handle] = []string{"node-1"} },
			reasonInUse},
		"an attached inline volume": {func(w *world) { w.attached = inline(driverName, "vol-1") }, reasonInUse},
		"an attached inline volume of another name": {func(w *world) { w.attached = inline(driverName, "vol-2") },
			reasonPVUnclear},
		"an attached inline volume of another driver": {func(w *world) { w.attached = inline("another", "vol-1") },
			ReasonLeakSuspected},
		"an attached PV that is gone": {func(w *world) {
			w.attached = inline(driverName, "")
			w.attached[0].Spec.Source = storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}
		}, ReasonLeakSuspected},
	} {
		w := newWorld(t)
		w.blind = true
		w.volumes[handle] = true
		if sentence == "a PV of another name" || strings.Contains(sentence, "in-tree") {
			w.volumes["other"] = true
		}
		a := w.auditor(func(c *Config) { c.Grace = -1 })
		if first, second := w.check(a, handle), w.check(a, handle); first != ReasonSeenTooSeldom ||
			second != ReasonLeakSuspected {
			t.Fatalf("%s: before: %s, %s", sentence, first, second)
		}
		c.so(w)
		if got := w.check(a, handle); got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
		if c.want == ReasonLeakSuspected {
			continue
		}
		clear(w.pvs)
		clear(w.contents)
		clear(w.inUse)
		clear(w.entries)
		w.problems, w.attached = nil, nil
		if first, second := w.check(a, handle), w.check(a, handle); first != ReasonSeenTooSeldom ||
			second != ReasonLeakSuspected {
			t.Errorf("%s, and then no more: %s, %s, want the sightings to begin anew", sentence, first, second)
		}
	}
	// A possible maker counts only if it existed before the volume was listed.
	for sentence, c := range map[string]struct {
		so    func(*world)
		makes bool
	}{
		"a claim that waits": {claim(func(*v1.PersistentVolumeClaim) {}), true},
		"a claim, by the old words": {claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{volume.AnnProvisionerBeta: driverName}
		}), true},
		"a claim that was migrated": {claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{volume.AnnMigratedTo: driverName}
		}), true},
		"a claim that is bound": {claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }), false},
		"a claim of another driver": {claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations[volume.AnnProvisioner] = "another"
		}), false},
		"a claim without a provisioner":    {claim(func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }), false},
		"a snapshot in the making":         {content(driverName, "", true), true},
		"another driver's snapshot":        {content("another", "", true), false},
		"a snapshot that is ready":         {content(driverName, "z", false), false},
		"an entry of a claim that is gone": {func(w *world) { w.addEntry("x") }, true},
		"another driver's entry":           {func(w *world) { w.addEntry("x"); w.driverOf("x", "another") }, false},
		"a claim that others hold": {claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations, c.Finalizers = nil, []string{"kubernetes.io/pvc-protection"}
		}), false},
	} {
		w := newWorld(t)
		c.so(w)
		w.volumes[handle] = true
		a := w.auditor(func(c *Config) { c.Grace = -1 })
		w.check(a, handle)
		want := ReasonLeakSuspected
		if c.makes {
			want = ReasonBeingMade
		}
		if got := w.check(a, handle); got != want {
			t.Errorf("%s: %q, want %q", sentence, got, want)
		}
		if !c.makes {
			continue
		}
		if v, _ := a.Report().Find(handle); v.Because == "" || v.Sightings != 0 {
			t.Errorf("%s: it does not report who, or the sighting counts: %+v", sentence, v)
		}
		clear(w.claims)
		clear(w.contents)
		clear(w.entries)
		if first, second := w.check(a, handle), w.check(a, handle); first != ReasonSeenTooSeldom ||
			second != ReasonLeakSuspected {
			t.Errorf("%s, and then no more: %s, %s", sentence, first, second)
		}
		c.so(w)
		if got := w.check(a, handle); got != ReasonLeakSuspected {
			t.Errorf("%s, after the volume: %s", sentence, got)
		}
	}
}

func TestReportForgottenEntries(t *testing.T) {
	for sentence, c := range map[string]struct {
		so    func(*world)
		age   time.Duration
		named bool
	}{
		"neither claim nor PV exists":      {func(*world) {}, 61 * time.Minute, true},
		"for less than the grace":          {func(*world) {}, 59 * time.Minute, false},
		"its claim exists":                 {func(w *world) { w.addClaim("x") }, 2 * time.Hour, false},
		"its PV exists":                    {func(w *world) { w.addPV("pvc-x", "vol") }, 2 * time.Hour, false},
		"another claim of its name":        {func(w *world) { w.addClaim("x").UID = "y" }, 2 * time.Hour, true},
		"another driver's, long forgotten": {func(w *world) { w.driverOf("x", "another") }, 2 * time.Hour, false},
	} {
		w := newWorld(t)
		a := w.auditor(nil)
		w.addEntry("x")
		c.so(w)
		w.clock.Step(c.age)
		w.check(a, "")
		r := a.Report()
		if (len(r.InFlight) == 1) != c.named {
			t.Errorf("%s: %+v", sentence, r.InFlight)
		}
		var text strings.Builder
		if err := r.WriteTable(&text, false); err != nil || strings.Contains(text.String(),
			"Volume pvc-x is in flight since") != c.named {
			t.Errorf("%s: %v\n%s", sentence, err, text.String())
		}
	}
}

func TestMakerWithInterruptedWait(t *testing.T) {
	w := newWorld(t)
	a := w.auditor(func(c *Config) { c.Grace = -1 })
	c := w.addClaim("c")
	w.volumes["leak"] = true
	w.check(a, "leak")
	c.Spec.VolumeName = "pv"
	w.check(a, "leak")
	c.Spec.VolumeName = ""
	if got := w.check(a, "leak"); got != ReasonLeakSuspected {
		t.Errorf("%s", got)
	}
	w.volumes["late"] = true
	w.check(a, "late")
	if got := w.check(a, "late"); got != ReasonBeingMade {
		t.Errorf("one that came while it waits again: %s", got)
	}
}

func TestIncompleteLeakCheckIsNoSighting(t *testing.T) {
	for _, what := range parts {
		w := newWorld(t)
		a := w.auditor(func(c *Config) { c.Grace = -1 })
		w.volumes["leak"] = true
		w.check(a, "leak")
		w.broken[what] = true
		for range 3 {
			a.reconcile(w.quiet(), checkKey{})
		}
		if v, _ := a.Report().Find("leak"); v.Reason != ReasonSeenTooSeldom || v.Sightings != 1 {
			t.Errorf("%s cannot be read: %+v", what, v)
		}
		if r := a.Report(); !strings.Contains(r.Failure, errBroken.Error()) ||
			!strings.Contains(r.Headline(), errBroken.Error()) {
			t.Errorf("%s cannot be read: it is not reported: %+v", what, r)
		}
		if len(w.reported) != 1 || !strings.HasPrefix(w.reported[0], "Warning LeakCheckFailed") {
			t.Errorf("%s cannot be read: reported %q, want once", what, w.reported)
		}
		w.broken[what] = false
		if got := w.check(a, "leak"); got != ReasonLeakSuspected || a.Report().Failure != "" {
			t.Errorf("%s can be read again: %s, %+v", what, got, a.Report())
		}
		w.broken[what] = true
		a.reconcile(w.quiet(), checkKey{})
		if v, _ := a.Report().Find("leak"); !v.Suspected {
			t.Errorf("%s cannot be read: what was found before is taken back", what)
		}
	}
}

func TestPVChangeEndsSuspicion(t *testing.T) {
	w := newWorld(t)
	a := w.auditor(func(c *Config) { c.Grace = -1 })
	w.volumes["leak"] = true
	w.check(a, "leak")
	w.check(a, "leak")
	w.addPV("pv", "LEAK")
	if r := a.Report(); r.Suspected != 0 || len(r.Volumes) != 0 {
		t.Errorf("a PV has come, and the volume is suspected still: %+v", r)
	}
	w.removePV("pv")
	if got := w.check(a, "leak"); got != ReasonSeenTooSeldom {
		t.Errorf("it came and went between two leak checks: %s, want the sightings to begin anew", got)
	}
	reads := 0
	w.stir = func() {
		if reads++; reads == 2 {
			w.addPV("pv", "leak")
			w.removePV("pv")
		}
	}
	if got := w.check(a, "leak"); got != "" {
		t.Errorf("it came and went during the leak check: %s", got)
	}
}

// inline is the VolumeAttachment of a volume that a pod names without a PV.
func inline(driver, handle string) []*storagev1.VolumeAttachment {
	return []*storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1",
			Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &v1.PersistentVolumeSpec{
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: handle}}}}}}}
}

func TestRunUntilStopped(t *testing.T) {
	for how, stop := range map[string]func(*Controller, context.CancelFunc){
		"the context ends": func(_ *Controller, cancel context.CancelFunc) { cancel() },
		"it is stopped":    func(a *Controller, _ context.CancelFunc) { a.Stop() },
	} {
		w := newWorld(t)
		reads, over := make(chan struct{}), make(chan struct{})
		w.stir = func() {
			select {
			case reads <- struct{}{}:
			case <-over:
			}
		}
		a := w.auditor(nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		for range 3 * len(parts) { // three leak checks
			for read := false; !read; {
				select {
				case <-reads:
					read = true
				case <-time.After(time.Millisecond):
					w.clock.Step(time.Minute)
				}
			}
		}
		close(over)
		stop(a, cancel)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", how, err)
		}
		cancel()
		watched, end := context.WithCancel(t.Context())
		end()
		a.Watch(watched)
	}
}

func TestStopBeforeRun(t *testing.T) {
	w := newWorld(t)
	a := w.auditor(nil)
	a.Stop()
	if err := a.Run(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if a.Report().Listed != 0 || !a.Report().Completed.IsZero() {
		t.Error("a leak check was made")
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewPedanticRegistry()
	a := w.auditor(func(c *Config) { c.Grace, c.Metrics = -1, registry })
	w.volumes["leak"], w.volumes["kept"] = true, true
	w.addPV("pv", "kept")
	w.check(a, "leak")
	w.volumes["young"] = true
	w.check(a, "leak")
	w.broken["pvs"] = true
	a.reconcile(w.quiet(), checkKey{})
	families := must.Get(registry.Gather())(t)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" {
					name += " " + label.GetValue()
				}
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"csi_reclaimer_suspected_leaks": 1, "csi_reclaimer_suspected_leak_bytes": 1 << 30,
		"csi_reclaimer_leak_check_failures_total":                  1,
		"csi_reclaimer_leak_check_last_complete_timestamp_seconds": float64(noon.Unix()),
	}
	for _, reason := range Reasons() {
		want["csi_reclaimer_unaccounted_volumes "+string(reason)] = 0
	}
	want["csi_reclaimer_unaccounted_volumes LeakSuspected"], want["csi_reclaimer_unaccounted_volumes SeenTooSeldom"] = 1, 1
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestInvalidConfig(t *testing.T) {
	w := newWorld(t)
	for sentence, change := range map[string]func(*Config){
		"no interval":               func(c *Config) { c.Interval = 0 },
		"a negative interval":       func(c *Config) { c.Interval = -time.Second },
		"one sighting":              func(c *Config) { c.Sightings = 1 },
		"a negative sighting":       func(c *Config) { c.Sightings = -3 },
		"a page beyond all numbers": func(c *Config) { c.PageSize = 1 << 31 },
	} {
		cfg := Config{Interval: time.Minute}
		change(&cfg)
		if _, err := newController(w, driverName, w, cfg); err == nil {
			t.Errorf("%s is taken", sentence)
		}
	}
	if _, err := newController(w, "", w, Config{Interval: time.Minute}); err == nil {
		t.Error("a driver without a name is taken")
	}
	if _, err := newController(w, driverName, nil, Config{Interval: time.Minute}); err == nil {
		t.Error("no driver is taken")
	}
	if _, err := New(nil, driverName, w, Config{Interval: time.Minute}); err == nil {
		t.Error("no cluster is taken")
	}
	if got := (Config{Interval: time.Minute}).withDefaults(); got.Sightings != 3 || got.Grace != time.Hour ||
		got.PageSize != 500 {
		t.Errorf("defaults: %+v", got)
	}
}
