//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// allRight is how every scenario of the first act should end.
func allRight() (verdicts []verdict) {
	for _, sc := range scenarios() {
		verdicts = append(verdicts, result{scenario: sc, seen: sc.want}.verdict())
	}
	return verdicts
}

// allCrashed is how every scenario of the second act should end.
func allCrashed() (verdicts []verdict) {
	for _, sc := range crashScenarios() {
		verdicts = append(verdicts, sc.verdict(sc.want))
	}
	return verdicts
}

// allGuarded is how every scenario with volume-guard alone should end.
func allGuarded() (verdicts []verdict) {
	for _, sc := range guardScenarios() {
		verdicts = append(verdicts, guardResult{scenario: sc, seen: sc.want}.verdict())
	}
	return verdicts
}

// allHeld is how every scenario of the fourth act should end, on nodes that are played.
func allHeld() (verdicts []verdict) {
	for _, sc := range podScenarios() {
		verdicts = append(verdicts, sc.verdict(&playedNodes{}, sc.want(&playedNodes{})))
	}
	return verdicts
}

func TestJudge(t *testing.T) {
	all := slices.Concat(allRight(), allCrashed(), allGuarded(), allHeld(), allLocked(), allScaled())
	if err := judge(all); err != nil {
		t.Errorf("all as wanted: %v", err)
	}
	for name, change := range map[string]func(*outcome){
		"the volume is left where it should go, or gone where it should stay": func(o *outcome) { o.onDisk = !o.onDisk },
		"one call too many":                func(o *outcome) { o.deleteCalls++ },
		"the PV is stuck":                  func(o *outcome) { o.pv, o.held = "Failed", true },
		"protected or not, wrongly":        func(o *outcome) { o.protected = !o.protected },
		"released before it was reclaimed": func(o *outcome) { o.late = true },
	} {
		for i, sc := range scenarios() {
			seen := sc.want
			change(&seen)
			t.Run(name+": "+sc.title, func(t *testing.T) { expectNoticed(t, allRight(), i, seen) })
		}
		for i, sc := range crashScenarios() {
			seen := sc.want
			change(&seen)
			t.Run(name+": "+sc.title, func(t *testing.T) { expectNoticed(t, allCrashed(), i, seen) })
		}
	}
	for name, change := range map[string]func(*guardOutcome){
		"the directory is left, or gone, against the policy": func(o *guardOutcome) { o.onDisk = !o.onDisk },
		"the PV is stuck":                       func(o *guardOutcome) { o.pv = "Released" },
		"the claim is stuck":                    func(o *guardOutcome) { o.claim = terminating },
		"a twin is left":                        func(o *guardOutcome) { o.twins++ },
		"the claim was taken away from its pod": func(o *guardOutcome) { o.used = lostTo },
	} {
		for i, sc := range guardScenarios() {
			seen := sc.want
			change(&seen)
			t.Run(name+": "+sc.title, func(t *testing.T) { expectNoticed(t, allGuarded(), i, seen) })
		}
	}
	for name, change := range map[string]func(*podOutcome){
		"a force deletion is refused, or not, wrongly": func(o *podOutcome) {
			o.deleted = map[string]string{admitted: refused, refused: admitted, evictedPod: refused}[o.deleted]
		},
		"the pod is replaced too early, or not at all": func(o *podOutcome) {
			o.replaced = map[string]string{replacedEarly: replacedLate, replacedLate: replacedEarly,
				replacedFenced: replacedEarly}[o.replaced]
		},
		"two pods write, or one does, wrongly": func(o *podOutcome) { o.data += " not" },
	} {
		for i, sc := range podScenarios() {
			seen := sc.want(&playedNodes{})
			change(&seen)
			t.Run(name+": "+sc.title, func(t *testing.T) { expectNoticed(t, allHeld(), i, seen) })
		}
	}
}

// expectNoticed checks that all is said of one scenario that ended in another way than it should.
func expectNoticed(t *testing.T, verdicts []verdict, i int, seen ending) {
	t.Helper()
	verdicts[i].seen = seen
	v := verdicts[i]
	err := judge(verdicts)
	if !errors.Is(err, errWrong) {
		t.Fatalf("judge = %v, want errWrong", err)
	}
	status, line := conclude(err, false)
	if status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{v.title, v.want.String(), v.seen.String()} {
		if !strings.Contains(line, want) {
			t.Errorf("the last line does not say %q: %s", want, line)
		}
	}
	var out bytes.Buffer
	p := newPrinter(&out, false)
	p.table(verdicts)
	if strings.Count(out.String(), "WRONG") != 1 {
		t.Errorf("the table shows not one WRONG:\n%s", out.String())
	}
	out.Reset()
	p.moral(v)
	if strings.Contains(out.String(), v.conclusion) {
		t.Errorf("says what did not happen:\n%s", out.String())
	}
}

func TestConclude(t *testing.T) {
	untidy := fmt.Errorf("%w: folder not empty", errUntidy)
	cases := map[string]struct {
		err         error
		interrupted bool
		status      int
		line        string
	}{
		"all right":                            {nil, false, 0, ""},
		"Ctrl-C ends a kept cluster":           {nil, true, 0, ""},
		"something does not start":             {errors.New("no etcd"), false, 1, "no etcd"},
		"something is left behind":             {untidy, false, 1, "folder not empty"},
		"Ctrl-C in the middle":                 {context.Canceled, true, 130, "has ended"},
		"Ctrl-C, and something is left":        {errors.Join(context.Canceled, untidy), true, 130, "folder not empty"},
		"a wrong verdict, kept until Ctrl-C":   {errWrong, true, 1, "wrong verdict"},
		"a wrong verdict and something left":   {errors.Join(errWrong, untidy), false, 1, "folder not empty"},
		"a deadline is not taken for a Ctrl-C": {context.DeadlineExceeded, false, 1, "deadline"},
	}
	for name, c := range cases {
		status, line := conclude(c.err, c.interrupted)
		if status != c.status || !strings.Contains(line, c.line) || (line == "") != (c.line == "") {
			t.Errorf("%s: %d %q, want %d with %q", name, status, line, c.status, c.line)
		}
	}
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"help teaches":       {[]string{"--help"}, 0, "--keep", ""},
		"an unknown flag":    {[]string{"--kep"}, 2, "", "see --help"},
		"an argument":        {[]string{"keep"}, 2, "", `argument "keep" is not known`},
		"help, exit codes":   {[]string{"-h"}, 0, "130", ""},
		"a tour is not kept": {[]string{"--tour", "--keep"}, 2, "", "exclude each other"},
	}
	for name, c := range cases {
		stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		status := run(c.args, stdout, &stderr)
		printed, err := os.ReadFile(stdout.Name())
		if err := errors.Join(err, stdout.Close()); err != nil {
			t.Fatal(err)
		}
		if status != c.status || !strings.Contains(string(printed), c.stdout) || !strings.Contains(stderr.String(),
			c.stderr) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", name, status, printed, stderr.String())
		}
	}
}

func pv(phase v1.PersistentVolumePhase, terminating bool, finalizers ...string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers},
		Status:     v1.PersistentVolumeStatus{Phase: phase},
	}
	if terminating {
		pv.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return pv
}

func TestChanges(t *testing.T) {
	const theirs = "kubernetes.io/pv-protection"
	cases := map[string]struct {
		before, now *v1.PersistentVolume
		want        []string
	}{
		"made": {nil, pv(v1.VolumePending, false, theirs),
			[]string{"the PV is there", "finalizer kubernetes.io/pv-protection is added to the PV"}},
		"bound and protected at once": {pv(v1.VolumeAvailable, false, theirs),
			pv(v1.VolumeBound, false, theirs, volume.Finalizer),
			[]string{"the PV is Bound", "csi-reclaimer's finalizer is added to the PV"}},
		"deleted": {pv(v1.VolumeBound, false), pv(v1.VolumeBound, true), []string{"the PV is terminating, phase Bound"}},
		"one finalizer of two goes": {pv(v1.VolumeReleased, true, theirs, volume.Finalizer),
			pv(v1.VolumeReleased, true, volume.Finalizer),
			[]string{"finalizer kubernetes.io/pv-protection is removed from the PV"}},
		"ours goes last": {pv(v1.VolumeReleased, true, volume.Finalizer), nil,
			[]string{"csi-reclaimer's finalizer is removed, and the PV is gone"}},
		"gone without":                  {pv(v1.VolumeReleased, true, theirs), nil, []string{"the PV is gone"}},
		"nothing that a person notices": {pv(v1.VolumeBound, false), pv(v1.VolumeBound, false), nil},
	}
	for name, c := range cases {
		if got := changes("PV", c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestClaimChanges(t *testing.T) {
	claim := func(terminating bool, finalizers ...string) *v1.PersistentVolumeClaim {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: pv("", terminating, finalizers...).ObjectMeta}
		claim.Status.Phase = v1.ClaimBound
		return claim
	}
	cases := map[string]struct {
		before, now *v1.PersistentVolumeClaim
		want        []string
	}{
		"made":                          {nil, claim(false), []string{"the claim is there"}},
		"deleted":                       {claim(false), claim(true), []string{"the claim is terminating"}},
		"still there":                   {claim(true), claim(true), nil},
		"gone":                          {claim(true), nil, []string{"the claim is gone"}},
		"nothing that a person notices": {claim(false), claim(false), nil},
	}
	for name, c := range cases {
		if got := claimChanges(c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestClaimWaitEndsWithClaimWatchOrContext(t *testing.T) {
	line := newPrinter(&bytes.Buffer{}, false).timeline()
	w := &claimWatcher{gone: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.patient(ctx, line); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want canceled", err)
	}
	close(w.ended)
	if err := w.patient(t.Context(), line); !errors.Is(err, errWatchEnded) {
		t.Errorf("the watch ended: %v, want errWatchEnded", err)
	}
	w = &claimWatcher{gone: make(chan struct{}), ended: make(chan struct{})}
	close(w.gone)
	if err := w.patient(t.Context(), line); err != nil {
		t.Errorf("gone: %v", err)
	}
}

func TestClaimState(t *testing.T) {
	bound := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	deleted := bound.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for want, claim := range map[string]*v1.PersistentVolumeClaim{gone: nil, "Bound": bound, terminating: deleted} {
		if got := claimState(claim); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTwinsAreOtherPVsOfTheSameDirectory(t *testing.T) {
	of := func(name, path string) v1.PersistentVolume {
		volume := pv(v1.VolumeBound, false)
		volume.Name = name
		volume.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
		return *volume
	}
	csi := pv(v1.VolumeBound, false)
	pvs := []v1.PersistentVolume{of("a", "/tmp/x/a"), of("a-reclaim", "/tmp/x/a"), of("b", "/tmp/x/b"), *csi}
	if n := twins(pvs, &objects.Volume{Name: "a", Handle: "/tmp/x/a"}); n != 1 {
		t.Errorf("%d twins of a, want 1", n)
	}
	if n := twins(pvs, &objects.Volume{Name: "b", Handle: "/tmp/x/b"}); n != 0 {
		t.Errorf("%d twins of b, want none", n)
	}
}

func TestWaitForExistingTwin(t *testing.T) {
	stream := watch.NewFake()
	w := follow(newPrinter(&bytes.Buffer{}, false).timeline(), "twin", stream)
	if err := w.ifThere(t.Context()); err != nil {
		t.Errorf("no twin: %v", err)
	}
	stream.Add(pv(v1.VolumeReleased, false))
	if err := w.until(t.Context(), "there", func(*v1.PersistentVolume) bool { return true }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.ifThere(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a twin that stays: %v, want canceled", err)
	}
	stream.Delete(pv(v1.VolumeReleased, true))
	if err := w.ifThere(t.Context()); err != nil {
		t.Errorf("a twin that goes: %v", err)
	}
	w.stop()
}

func TestWatchRecordsProtectionAndDeletionTime(t *testing.T) {
	var out bytes.Buffer
	line := newPrinter(&out, false).timeline()
	stream := watch.NewFake()
	w := follow(line, "PV", stream)
	stream.Add(pv(v1.VolumeBound, false, volume.Finalizer))
	if err := w.until(t.Context(), "protected", isProtected); err != nil {
		t.Fatal(err)
	}
	if w.observe(nil).goneAt != (time.Time{}) {
		t.Error("gone while it is there")
	}
	stream.Modify(pv(v1.VolumeReleased, true))
	stream.Delete(pv(v1.VolumeReleased, true))
	if err := w.until(t.Context(), gone, func(*v1.PersistentVolume) bool { return false }); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if s := w.observe(nil); !s.protected || s.goneAt.IsZero() {
		t.Errorf("sight %+v, want protected and gone", s)
	}
	line.print()
	if !strings.HasSuffix(out.String(), "the PV is gone\n") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestUntilEndsWithContextOrWatch(t *testing.T) {
	stream := watch.NewFake()
	w := follow(newPrinter(&bytes.Buffer{}, false).timeline(), "PV", stream)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.until(ctx, "bound", isBound); !errors.Is(err, context.Canceled) {
		t.Errorf("until = %v, want canceled", err)
	}
	w.stop()
	if err := w.until(t.Context(), "bound", isBound); !errors.Is(err, errWatchEnded) {
		t.Errorf("until = %v, want errWatchEnded", err)
	}
}

func TestDeletionAfterPVIsTooLate(t *testing.T) {
	goneAt := time.Now()
	cases := map[string]struct {
		answered, goneAt time.Time
		want             bool
	}{
		"the PV is still there":     {goneAt, time.Time{}, false},
		"answered, then gone":       {goneAt.Add(-time.Millisecond), goneAt, false},
		"gone, then answered":       {goneAt.Add(time.Millisecond), goneAt, true},
		"gone, and never answered":  {time.Time{}, goneAt, true},
		"there, and never answered": {time.Time{}, time.Time{}, false},
	}
	for name, c := range cases {
		if got := tooLate(c.answered, c.goneAt); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFolderIsRemovedUnlessLogsAreKept(t *testing.T) {
	for _, stays := range []bool{false, true} {
		var out bytes.Buffer
		env := &environment{p: newPrinter(&out, false), dir: filepath.Join(t.TempDir(), "demo")}
		if err := os.Mkdir(env.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if stays {
			env.saveLogs()
		}
		if err := env.tearDown(); err != nil {
			t.Error(err)
		}
		_, err := os.Stat(env.dir)
		if errors.Is(err, fs.ErrNotExist) == stays {
			t.Errorf("logs to stay: %v, folder: %v", stays, err)
		}
		if strings.Contains(out.String(), env.dir) != stays {
			t.Errorf("logs to stay: %v, printed %q", stays, out.String())
		}
	}
}
